package allocated

import (
	"encoding/json"
	"testing"

	"golang.org/x/sys/unix"
)

// encode writes a file as kubelet does.
func encode(data string, sum uint64) []byte {
	b, err := json.Marshal(map[string]any{"data": data, "checksum": sum})
	if err != nil {
		panic(err) // a string and a number
	}
	return b
}

func pipe(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
