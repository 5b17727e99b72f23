package diskusage

import (
	"bytes"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quotaUsage is what a filesystem counted for a project.
type quotaUsage struct {
	project       uint32
	bytes, inodes uint64
}

// From linux/fs.h and linux/quota.h.
const (
	fsIocGetXattr = 0x801c581f // _IOR('X', 31, struct fsxattr)
	qGetQuota     = 0x800007
	prjQuota      = 2
	qifSpace      = 1 << 1
	qifInodes     = 1 << 3

	xflagProjInherit = 0x200
)

// fsxattr is struct fsxattr.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk.
type dqblk struct {
	blockHard, blockSoft, space  uint64
	inodeHard, inodeSoft, inodes uint64
	blockTime, inodeTime         uint64
	valid                        uint32
	_                            uint32
}

// projectOf reads the project of an open file or directory. ok is false where
// the filesystem has no projects.
func projectOf(fd int) (project uint32, inherits, ok bool) {
	var x fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocGetXattr, uintptr(unsafe.Pointer(&x))); errno != 0 {
		return 0, false, false
	}
	return x.projid, x.xflags&xflagProjInherit != 0, true
}

// quotaOf asks the filesystem of an open file what a project has. It never sets
// anything.
func quotaOf(fd int, project uint32) (quotaUsage, bool) {
	var q dqblk
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), uintptr(qGetQuota<<8|prjQuota), uintptr(project), uintptr(unsafe.Pointer(&q)), 0, 0)
	if errno != 0 || q.valid&(qifSpace|qifInodes) != qifSpace|qifInodes {
		return quotaUsage{}, false
	}
	return quotaUsage{project: project, bytes: q.space, inodes: q.inodes}, true
}

// projects are the directories kubelet gave a project of their own, by path.
type projects map[string]uint32

// maxProjects bounds the file that is read, in bytes.
const maxProjects = 4 << 20

// parseProjects reads the form of /etc/projects, "id:path" a line, where
// kubelet notes the projects it assigns (volume/util/fsquota/project.go,
// Kubernetes 1.37). Lines that make no sense are passed over. A project that is
// given to two directories, or a directory with two, is left out: what the
// quota says is then not this directory's.
func parseProjects(b []byte) projects {
	out := projects{}
	var bad []string
	owner := map[uint32]string{}
	for line := range bytes.Lines(b) {
		id, path, ok := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{':'})
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(id)), 10, 32)
		if err != nil || n == 0 || len(path) == 0 || path[0] != '/' {
			continue
		}
		project, dir := uint32(n), string(path)
		if other, taken := owner[project]; taken && other != dir {
			bad = append(bad, other, dir)
		}
		if other, taken := out[dir]; taken && other != project {
			bad = append(bad, dir)
		}
		owner[project] = dir
		out[dir] = project
	}
	for _, dir := range bad {
		delete(out, dir)
	}
	return out
}

// usage is the quota of an open directory, if the project it has is the one
// that is noted for this path. The owner of a file may change its project as
// long as no user namespace hides it; kubelet gives projects only to pods with
// one (LocalStorageCapacityIsolationFSQuotaMonitoring), so any other number is
// not to be trusted and the directory is walked.
func (p projects) usage(fd int, path string) (quotaUsage, bool) {
	want, ok := p[path]
	if !ok {
		return quotaUsage{}, false
	}
	project, inherits, ok := projectOf(fd)
	if !ok || !inherits || project != want {
		return quotaUsage{}, false
	}
	return quotaOf(fd, project)
}
