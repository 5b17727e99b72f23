// Package holds keeps the list of pods that were evicted and must stay down.
//
// The list lives in a small file on tmpfs that one process writes (the
// evictor) and any number read (the proxy, at each gated call). Behind it
// stands a ledger on disk that the slow half of the evictor fills.
//
// # The file
//
// One header of 4,096 bytes and then Slots records of RecordSize bytes, all
// little endian:
//
//	offset  size  field
//	     0     8  magic "CRIEVHLD"
//	     8     4  format version (1)
//	    12     4  header size (4096)
//	    16     4  record size (1024)
//	    20     4  number of records (1024)
//	    24     8  created, unix nanoseconds
//	    32    28  reserved, zero
//	    60     4  CRC-32C of bytes 0 to 59
//	    64    64  the node's conditions, with a checksum of their own (conditions.go)
//	   128     8  generation: another value after each change
//	   192    16  ID mark and its complement: no ID at or above it was given out
//
// Each record carries a CRC-32C over itself (see codec.go). A slot of zeros is
// free; one whose checksum is wrong is as good as free, is reported, and hides
// nothing but itself.
//
// # Why nobody waits and nobody reads half a hold
//
//   - A record is written with one pwrite inside one page and only then the
//     generation. Readers compare the generation before and after reading.
//   - A standing hold is never overwritten in place while there is room: the
//     changed record goes to another slot first, with a higher revision, and
//     the old slot is cleared afterwards. A writer killed between the two
//     leaves two whole copies, of which the newer counts.
//   - Slots are owned by an atomic compare-and-swap. The real-time thread takes
//     no lock and allocates nothing.
//   - Nobody looks at the file through a mapping: a truncation by a third party
//     must never end the proxy with SIGBUS.
package holds
