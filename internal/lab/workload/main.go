// Command workload is what runs inside a lab's containers. It is built static
// and is also the pause image; it uses the standard library only, because it
// is built on its own from an embedded copy of this folder.
package main

import (
	"fmt"
	"io"
	"os"
)

const usage = `usage: workload COMMAND [flags]
  pause        sleep until SIGTERM or SIGINT, reap children (the sandbox image)
  alloc        touch anonymous memory at a rate, then stay
               --total SIZE --rate SIZE (per second; 0: at once) [--ignore-term] [--hold=false]
  beat         print one line per second, end at SIGTERM
  ignore-term  stay, and ignore SIGTERM
  exit0        stay, and end with code 0 at SIGTERM
  write        write files at a rate, then stay
               --dir DIR --total SIZE --rate SIZE [--ignore-term] [--hold=false]
  files        make empty files at a rate, then stay
               --dir DIR --count N --rate N [--hold=false]
  flood        fill the page cache: write a file, if it is not there, and read it
               --file FILE --total SIZE --passes N (0: until SIGTERM) [--hold=false]
  fork         keep processes, then stay
               --count N
SIZE: bytes, or with Ki, Mi, Gi
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 2 for a usage error, 1 for a failure.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	commands := map[string]func([]string, io.Writer, io.Writer) int{
		"pause": pause, "alloc": alloc, "beat": beat, "ignore-term": ignoreTerm,
		"exit0": exit0, "write": write, "files": files, "flood": flood, "fork": fork, "child": child,
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "workload: no command %q\n%s", args[0], usage)
		return 2
	}
	return command(args[1:], stdout, stderr)
}
