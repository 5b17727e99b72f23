package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// goModule is a tagged Go module whose commands `go install` refuses to build,
// because its go.mod replaces modules by folders of its own repository.
type goModule struct {
	path, version string
	// local is the version under which the replaced folders are published.
	local string
}

// goMod is what is needed of `go mod edit -json`.
type goMod struct {
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old struct{ Path string }
		New struct{ Path string }
	}
}

// build puts one program into the cache: the command of package pkg, or of
// main, a program of our own that imports packages of the module, if it is not
// empty. Versions are those of the module's own go.mod; the sums come from Go's
// checksum database.
func (m goModule) build(ctx context.Context, c cache, name, pkg, main string) (string, error) {
	unit := name + "-" + m.version
	if main != "" {
		sum := sha256.Sum256([]byte(main))
		unit += "-" + hex.EncodeToString(sum[:6])
		pkg = "."
	}
	dir, err := c.unit(ctx, unit+"-"+runtime.GOARCH, []string{name}, func(ctx context.Context, dir string) error {
		src := filepath.Join(dir, "src")
		if err := os.Mkdir(src, 0o755); err != nil {
			return err
		}
		if main == "" {
			main = "package main\n\nfunc main() {}\n" // a module needs a file to be one
		}
		if err := os.WriteFile(filepath.Join(src, "main.go"), []byte(main), 0o644); err != nil {
			return err
		}
		text, err := m.requirements(ctx, src)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(src, "go.mod"), []byte(text), 0o644); err != nil {
			return err
		}
		if err := runGo(ctx, c, src, nil, "build", "-mod=mod", "-trimpath", "-ldflags=-s -w", "-o", "../"+name, pkg); err != nil {
			return err
		}
		return os.RemoveAll(src)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// requirements returns the go.mod of a module that builds m's packages with the
// versions m itself names.
func (m goModule) requirements(ctx context.Context, dir string) (string, error) {
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module build\n"), 0o644); err != nil {
		return "", err
	}
	var info struct{ GoMod string }
	if err := goJSON(ctx, dir, &info, "mod", "download", "-json", m.path+"@"+m.version); err != nil {
		return "", err
	}
	var mod goMod
	if err := goJSON(ctx, dir, &mod, "mod", "edit", "-json", info.GoMod); err != nil {
		return "", err
	}
	return m.render(mod), nil
}

// render writes the go.mod; see requirements. A folder of the repository is
// replaced by the module it is published as.
func (m goModule) render(mod goMod) string {
	var local []string
	for _, r := range mod.Replace {
		if strings.HasPrefix(r.New.Path, ".") {
			local = append(local, r.Old.Path)
		}
	}
	slices.Sort(local)
	var b strings.Builder
	fmt.Fprintf(&b, "module build\n\ngo %s\n\nrequire (\n\t%s %s\n", mod.Go, m.path, m.version)
	for _, r := range mod.Require {
		version := r.Version
		if slices.Contains(local, r.Path) {
			version = m.local
		}
		fmt.Fprintf(&b, "\t%s %s // indirect\n", r.Path, version)
	}
	b.WriteString(")\n")
	for _, p := range local {
		fmt.Fprintf(&b, "\nreplace %s => %s %s\n", p, p, m.local)
	}
	return b.String()
}

// goJSON runs the go command and decodes what it prints.
func goJSON(ctx context.Context, dir string, into any, args ...string) error {
	goBin, err := findGo()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, goBin, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=on")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", path.Join(args...), err, lastLines(out, 10))
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("go %s: %w", path.Join(args...), err)
	}
	return nil
}
