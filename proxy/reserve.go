package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ImageReservation asks that nobody pulls or uses an image.
type ImageReservation struct {
	// Names are its ID and all its names.
	Names []string `json:"names"`
	// Quiet is for how long nobody may have asked for it, Limit when the reservation
	// ends by itself; both ns.
	Quiet time.Duration `json:"quiet"`
	Limit time.Duration `json:"limit"`
}

// reservedImage is the answer.
type reservedImage struct {
	Token string `json:"token"`
}

// ErrImageWanted is returned by ReserveImage when a call is about the image, or was
// a short while ago.
var ErrImageWanted = errors.New("the image is wanted")

// ReserveImage asks the proxy whose events socket is at path to have pulls and
// creations of an image wait until ReleaseImage, which gets the token.
func ReserveImage(ctx context.Context, path string, r ImageReservation) (token string, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("reservation of an image: %w", err)
	}
	body, err := askService(ctx, path, http.MethodPost, "/v1/images/reserve", bytes.NewReader(b))
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }() // read to its end or of no use
	var out reservedImage
	if err := json.NewDecoder(body).Decode(&out); err != nil {
		return "", fmt.Errorf("reservation of an image: %w", err)
	}
	return out.Token, nil
}

// ReleaseImage ends a reservation.
func ReleaseImage(ctx context.Context, path, token string) error {
	body, err := askService(ctx, path, http.MethodPost, "/v1/images/release?token="+url.QueryEscape(token), nil)
	if err != nil {
		return err
	}
	return body.Close()
}

// reservationSize bounds a request; the names of one image are a few hundred bytes.
const reservationSize = 1 << 20

// reserveImage answers POST /v1/images/reserve.
func (p *Proxy) reserveImage(w http.ResponseWriter, r *http.Request) {
	var in ImageReservation
	if err := json.NewDecoder(io.LimitReader(r.Body, reservationSize)).Decode(&in); err != nil || len(in.Names) == 0 || in.Limit <= 0 {
		http.Error(w, "names and a limit are needed", http.StatusBadRequest)
		return
	}
	token, err := p.images.reserve(in.Names, in.Quiet, in.Limit)
	switch {
	case errors.Is(err, ErrImageWanted):
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(reservedImage{Token: token}); err != nil {
		// Nobody knows of it then.
		p.images.release(token)
	}
}

// releaseImage answers POST /v1/images/release.
func (p *Proxy) releaseImage(w http.ResponseWriter, r *http.Request) {
	p.images.release(r.URL.Query().Get("token"))
	w.WriteHeader(http.StatusOK)
}
