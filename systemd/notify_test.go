package systemd

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
)

func quiet() *logrus.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

// told returns a manager and what it was told.
func told(err error) (*Manager, *[]string) {
	var all []string
	m := NewManager(quiet())
	m.send = func(state string) error {
		all = append(all, state)
		return err
	}
	return m, &all
}

func TestWhatTheManagerIsTold(t *testing.T) {
	m, all := told(nil)
	m.Ready()
	m.Reloading()
	m.Stopping()
	m.Successor(4711)
	m.Ready() // says nothing any more: the other process is the service
	m.Stopping()
	m.Speak()
	m.Ready()
	if len(*all) != 5 || !strings.HasPrefix((*all)[1], "RELOADING=1\nMONOTONIC_USEC=") {
		t.Fatalf("%q", *all)
	}
	(*all)[1] = "RELOADING"
	if want := []string{"READY=1", "RELOADING", "STOPPING=1", "MAINPID=4711\nREADY=1\nWATCHDOG=1", "READY=1"}; !slices.Equal(*all, want) {
		t.Errorf("told %q, want %q", *all, want)
	}
}

func TestManagerThatDoesNotAnswerStopsNothing(t *testing.T) {
	m, all := told(errors.New("no such socket"))
	m.Ready()
	m.Stopping()
	if len(*all) != 2 {
		t.Errorf("%q", *all)
	}
}
