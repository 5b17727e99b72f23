package cutdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The part of the NBD protocol that qemu's client needs (doc/proto.md of the
// network block device project): the fixed newstyle handshake with one export, and
// simple replies. Existing servers write to files or know no flush; this one has to
// know what was flushed.
const (
	nbdMagic       = 0x4e42444d41474943 // "NBDMAGIC"
	nbdOptionMagic = 0x49484156454f5054 // "IHAVEOPT"
	nbdOptionReply = 0x3e889045565a9
	nbdRequest     = 0x25609513
	nbdReply       = 0x67446698

	flagFixedNewstyle = 1

	optionAbort = 2
	optionInfo  = 6
	optionGo    = 7

	replyAck         = 1
	replyInfo        = 3
	replyUnsupported = 1<<31 | 1

	infoExport = 0

	transmitHasFlags  = 1
	transmitSendFlush = 4

	commandRead       = 0
	commandWrite      = 1
	commandDisconnect = 2
	commandFlush      = 3

	errorIO    = 5
	errorInval = 22

	// longest is more than qemu sends at once, in bytes.
	longest = 64 << 20
)

// Serve answers one client until it leaves or the power goes. A disk without power
// answers nothing, as if it were not there.
func (d *Disk) Serve(conn net.Conn) error {
	defer func() { _ = conn.Close() }() // all was said
	if err := d.greet(conn); err != nil {
		return fmt.Errorf("nbd handshake: %w", err)
	}
	for {
		err := d.answer(conn)
		if errors.Is(err, io.EOF) || errors.Is(err, ErrNoPower) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("nbd: %w", err)
		}
	}
}

func send(w io.Writer, fields ...any) error {
	var b []byte
	for _, f := range fields {
		var err error
		if b, err = binary.Append(b, binary.BigEndian, f); err != nil {
			return err
		}
	}
	_, err := w.Write(b)
	return err
}

// greet agrees on the export.
func (d *Disk) greet(conn net.Conn) error {
	if err := send(conn, uint64(nbdMagic), uint64(nbdOptionMagic), uint16(flagFixedNewstyle)); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(conn, binary.BigEndian, &flags); err != nil {
		return err
	}
	reply := func(option, kind uint32) error { // without data
		return send(conn, uint64(nbdOptionReply), option, kind, uint32(0))
	}
	for {
		var head struct {
			Magic          uint64
			Option, Length uint32
		}
		if err := binary.Read(conn, binary.BigEndian, &head); err != nil {
			return err
		}
		if head.Magic != nbdOptionMagic || head.Length > 4096 {
			return fmt.Errorf("option %d of %d bytes, magic %x", head.Option, head.Length, head.Magic)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(head.Length)); err != nil {
			return err
		}
		switch head.Option {
		case optionGo, optionInfo:
			info := []any{uint64(nbdOptionReply), head.Option, uint32(replyInfo), uint32(12),
				uint16(infoExport), uint64(d.Size()), uint16(transmitHasFlags | transmitSendFlush)}
			if err := send(conn, info...); err != nil {
				return err
			}
			if err := reply(head.Option, replyAck); err != nil {
				return err
			}
			if head.Option == optionGo {
				return nil
			}
		case optionAbort:
			return io.EOF
		default:
			if err := reply(head.Option, replyUnsupported); err != nil {
				return err
			}
		}
	}
}

// answer carries out one request.
func (d *Disk) answer(conn net.Conn) error {
	var r struct {
		Magic       uint32
		Flags, Kind uint16
		Cookie      uint64
		At          uint64
		Length      uint32
	}
	if err := binary.Read(conn, binary.BigEndian, &r); err != nil {
		return err
	}
	if r.Magic != nbdRequest || r.Length > longest {
		return fmt.Errorf("request %x of %d bytes", r.Magic, r.Length)
	}
	var data []byte
	var err error
	switch r.Kind {
	case commandRead:
		data = make([]byte, r.Length)
		_, err = d.ReadAt(data, int64(r.At))
	case commandWrite:
		b := make([]byte, r.Length)
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		_, err = d.WriteAt(b, int64(r.At))
	case commandFlush:
		err = d.Flush()
	case commandDisconnect:
		return io.EOF
	default:
		return send(conn, uint32(nbdReply), uint32(errorInval), r.Cookie)
	}
	if errors.Is(err, ErrNoPower) {
		return err
	}
	if err != nil {
		return send(conn, uint32(nbdReply), uint32(errorIO), r.Cookie)
	}
	return send(conn, uint32(nbdReply), uint32(0), r.Cookie, data)
}
