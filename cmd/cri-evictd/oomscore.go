package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"
)

// ownOOMScoreAdj is what kubelet and containerd run with. Guaranteed pods have
// −997 and −1000 would be never, which nobody deserves.
const ownOOMScoreAdj = -999

// lowerOOMScore keeps the kernel's OOM killer from taking the process that is
// there to make it superfluous (bugs.md B32). A service manager may have done so
// already; where it is not permitted that is one line.
func (a *app) lowerOOMScore(log logrus.FieldLogger) {
	path := filepath.Join(a.roots.Proc, "self", "oom_score_adj")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return // a tree that is not this machine's
	}
	if err == nil {
		var now int
		if now, err = strconv.Atoi(strings.TrimSpace(string(b))); err == nil && now > ownOOMScoreAdj {
			err = os.WriteFile(path, []byte(strconv.Itoa(ownOOMScoreAdj)), 0o644)
		}
	}
	if err != nil {
		log.WithError(err).Warn("the kernel's OOM killer may take this process before pods")
	}
}
