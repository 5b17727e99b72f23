// Package diskusage knows how many bytes and inodes each pod has on which
// device, and what gives them back.
//
// A pod's disk is made of parts: the writable layers of its containers (from
// the runtime's stats), logs, disk emptyDirs, etc-hosts, termination logs (from
// project quotas, or from walking the directories) and files that were deleted
// and are still open (from /proc). Memory emptyDirs, hostPath and other mounts
// are never counted.
//
// # The walker
//
// Tenants own these trees, and change them while they are read. So no symlink
// is followed, no mount is crossed, no descriptor is kept from one step to the
// next (a step goes on from where the previous one was by path, and checks that
// it found the same directory), memory is bounded whatever the tree looks like,
// and what vanishes meanwhile is no error. There is one walker, on a thread of
// its own with nice 19 and idle I/O priority. It works in steps of a few
// milliseconds and rests nineteen times as long after each.
//
// # Unknown
//
// A number that nobody could tell is unknown and not zero. One that is only
// known to be at least so much says so (Part.AtLeast).
package diskusage
