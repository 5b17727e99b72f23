package admin

const metricsIntro = `# Metrics and health

<!-- The table is made of admin.Families (make docs); a test fails when this page is not current. -->

The evictor (` + "`serve` or `evict`" + `) serves HTTP on ` + "`metricsBindAddress`" + `, by default 127.0.0.1:10271; ` + "`\"\"` or `\"0\"`" + ` turns it off. An
address that cannot be bound is logged, shown by ` + "`cri-evictd status`" + ` and tried again; nothing else depends on it. There is no
encryption and no login: whoever reaches the address reads it, and nobody changes anything through it.

| path | answer |
|---|---|
| ` + "`/metrics`" + ` | the metrics below, and the usual ` + "`process_*`" + ` ones of this process |
| ` + "`/healthz`" + ` | 200 while memory is being sampled, else 503: a restart may help |
| ` + "`/readyz`" + ` | 200 once memory was sampled and the runtime listed, else 503: nothing is decided yet |

` + "`/healthz` and `/readyz`" + ` are on the admin socket too. The proxy has no listener of its own: the evictor asks it over ` + "`proxySocket`" + ` at
each scrape and waits a second at most. While it does not answer, its last counts stand and age (` + "`source_age_seconds{source=\"proxy\"}`" + `).

Amounts are bytes, times seconds. Counters begin at 0 with the process they count in. No label carries the name of a pod; the
number of series does not depend on what runs on the node. The ` + "`reason`" + ` of ` + "`decisions_total`" + ` says for the outcome ` + "`noVictim`" + ` why nobody
was taken, once per breach and reason, and for the others what allowed it.

`

const metricsRest = `
## What to look at

* ` + "`cri_evictd_source_up == 0`" + `: something the decisions rely on cannot be read. ` + "`cri_evictd_source_age_seconds{source=\"memory\"}`" + ` above a few
  seconds: no decision can be made. The ledger's age grows while holds do not change, which is no fault.
* ` + "`increase(cri_evictd_decisions_total{outcome=\"evicted\"}[1h]) > 0`" + `: pods were evicted; ` + "`cri-evictd explain`" + ` on the node says which and why.
* ` + "`increase(cri_evictd_decisions_total{outcome=\"noVictim\"}[1h]) > 0`" + `: memory was short and nobody could be taken, by reason.
* ` + "`cri_evictd_kills_total{result=\"givenUp\"}`" + ` rising: a pod could not be killed.
* ` + "`cri_evictd_proxy_up == 0`" + ` on a node with a proxy: holds are not enforced. ` + "`cri_evictd_proxy_upstream_state{state=\"READY\"} == 0`" + `: the runtime is away.
* ` + "`cri_evictd_signal_time_to_threshold_seconds < 60`" + `: it is about to happen.
`
