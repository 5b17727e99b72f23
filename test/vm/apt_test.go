package main

import "testing"

func TestMirror(t *testing.T) {
	const deb822 = `Types: deb
# an old comment
URIs: http://one.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://two.example/security
Suites: bookworm-security
`
	for _, tt := range []struct{ file, suite, want string }{
		{deb822, "bookworm", "http://one.example/debian"},
		{deb822, "bookworm-security", "http://two.example/security"},
		{deb822, "trixie", ""},
		{"deb http://x.example/debian bookworm main\n", "bookworm", "http://x.example/debian"},
		{"deb [signed-by=/a arch=amd64] http://x.example/debian bookworm main contrib\n", "bookworm", "http://x.example/debian"},
		{"# deb http://x.example/debian bookworm main\n", "bookworm", ""},
		{"deb-src http://x.example/debian bookworm main\n", "bookworm", ""},
		{"deb http://x.example/debian bookworm-updates main\n", "bookworm", ""},
		{"", "bookworm", ""},
	} {
		if got := mirror(tt.file, tt.suite); got != tt.want {
			t.Errorf("%s in %q: %q, want %q", tt.suite, tt.file, got, tt.want)
		}
	}
}

func FuzzMirror(f *testing.F) {
	f.Add("URIs: http://x\nSuites: a\n", "a")
	f.Fuzz(func(_ *testing.T, file, suite string) { mirror(file, suite) })
}
