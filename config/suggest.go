package config

import (
	"fmt"
	"slices"
	"strings"
)

// suggest names the known word that the written one was probably meant to be:
// it differs in case only, or in at most two letters.
func suggest(written string, known []string) string {
	const most = 2
	best, word := most+1, ""
	for _, k := range slices.Sorted(slices.Values(known)) {
		if strings.EqualFold(k, written) {
			word = k
			break
		}
		if d := distance(written, k, best); d < best && d < len(k)/2 {
			best, word = d, k
		}
	}
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", word)
}

// distance is the Levenshtein distance of two words, or limit if that is less.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return min(row[len(b)], limit)
}
