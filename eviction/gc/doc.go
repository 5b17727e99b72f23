// Package gc removes what occupies the node's disks and nobody needs: dead
// containers and unused images.
//
// What may be removed is decided by pure functions of values and a time
// (PlanContainers, PlanImages); whatever is not known keeps things where they are.
// The Collector asks the runtime, removes one after the other, measures after each
// with statfs and stops as soon as enough is there.
package gc
