package config

import (
	"fmt"
	"strings"
)

// FieldError is one thing wrong with the configuration.
type FieldError struct {
	Field string // path such as evictionHard["memory.available"]
	Value string // as written; empty when the field is missing
	Want  string // what would be right
}

// Error names the field, the value and what would be right.
func (e FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Field, e.Want)
	}
	return fmt.Sprintf("%s: %s: %s", e.Field, e.Value, e.Want)
}

// Errors is everything wrong with the configuration, by field.
type Errors []FieldError

// Error lists all errors, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}
