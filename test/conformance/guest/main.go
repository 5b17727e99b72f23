// Command guest is what runs in the images critest pulls, apart from busybox
// and a shell: small stand-ins for the programs of the upstream images, as far
// as critest's specs look at them. The name it is started under says which.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if strings.HasPrefix(os.Args[0], nginxTitle) {
		serve("nginx", 80)
	}
	switch name := filepath.Base(os.Args[0]); name {
	case "pause":
		pause()
	case "nginx":
		nginx()
	case "httpd":
		serve("httpd", 80)
	case "nonewprivs":
		// The image has it setuid root: 0 unless no_new_privs is set.
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
	case "pgrep":
		pgrep(os.Args[1:])
	case "ipcs":
		ipcs()
	default:
		fmt.Fprintf(os.Stderr, "guest: no program of the name %q\n", name)
		os.Exit(127)
	}
}
