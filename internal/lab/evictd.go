package lab

import (
	"fmt"
	"path/filepath"
)

// Config is a cri-evictd configuration with all that it writes in a folder of its
// own, more lines at its end.
func Config(dir, runtimeEndpoint, more string) string {
	return ConfigAt(dir, filepath.Join(dir, "state"), filepath.Join(dir, "kubelet"), runtimeEndpoint, more)
}

// ConfigAt is Config with the ledger and kubelet's root folder elsewhere.
func ConfigAt(dir, stateDir, kubeletRootDir, runtimeEndpoint, more string) string {
	return fmt.Sprintf(`apiVersion: cri-evictd.io/v1alpha1
kind: EvictionConfiguration
metricsBindAddress: ""
listen: %[1]s/cri.sock
runtimeEndpoint: %[2]s
adminSocket: %[1]s/admin.sock
runDir: %[1]s/run
stateDir: %[4]s
kubeletRootDir: %[5]s
%[3]s`, dir, runtimeEndpoint, more, stateDir, kubeletRootDir)
}

// DisksOff are lines of a cri-evictd configuration, below evictionHard, that turn
// every disk threshold off: how full the disk of the machine is, and what other
// tests write on it, is no part of a test about memory.
const DisksOff = `  nodefs.available: "0%"
  nodefs.inodesFree: "0%"
  imagefs.available: "0%"
  imagefs.inodesFree: "0%"
`
