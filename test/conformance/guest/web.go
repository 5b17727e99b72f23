package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// nginxTitle is the command line a spec looks for in /proc/1/cmdline.
const nginxTitle = "nginx: master process"

// portVariable overrides the port; the image for the host's network has another.
const portVariable = "GUEST_PORT"

// nginx starts itself again under the title nginx gives its first process. The
// file, and so what pidof sees, stays nginx.
func nginx() {
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, []string{nginxTitle + " nginx -g daemon off;"}, os.Environ())
	}
	log.Fatal(err)
}

// serve answers every request with a page, logs it, and ends on a signal: as
// process 1 it would not otherwise.
func serve(name string, port int) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	go func() {
		<-ended
		os.Exit(0)
	}()
	if s := os.Getenv(portVariable); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			log.Fatalf("%s: %v", portVariable, err)
		}
		port = n
	}
	if name == "nginx" {
		// Specs wait for this file in a container that shares its processes.
		pid := fmt.Appendf(nil, "%d\n", os.Getpid())
		if err := os.WriteFile("/var/run/nginx.pid", pid, 0o644); err != nil {
			log.Print(err) // a read-only root; only one spec needs it
		}
	}
	log.SetPrefix(name + ": ")
	log.Printf("%s listens on port %d", name, port)
	err := http.ListenAndServe(fmt.Sprintf(":%d", port), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Printf("%s %s", r.Method, r.URL.Path)
		_, err := fmt.Fprintf(w, "<html><body>Welcome to %s</body></html>\n", name)
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			log.Print(err)
		}
	}))
	log.Fatal(err)
}
