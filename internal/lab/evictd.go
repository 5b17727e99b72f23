package lab

// DisksOff are lines of a cri-evictd configuration, below evictionHard, that turn
// every disk threshold off: how full the disk of the machine is, and what other
// tests write on it, is no part of a test about memory.
const DisksOff = `  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
  imagefs.inodesFree: "0%"
`
