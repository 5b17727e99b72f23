package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker for a release build.
var release string

// version is the release, or the commit a development build was made of.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

func (a *app) versionCommand() *cobra.Command {
	var d dataFlags
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := d.check(); err != nil {
				return err
			}
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			return d.print(a.out, v, func(w io.Writer) {
				fmt.Fprintf(w, "cri-evictd %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			})
		},
	}
	cmd.Flags().StringVarP(&d.output, "output", "o", "text", "text or json")
	return cmd
}
