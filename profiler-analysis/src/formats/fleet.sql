-- Views over a fleet, the same text for DuckDB, DataFusion and Spark. They read the tables operations, ranges and
-- recordings; docs/guide/fleet.md has how each engine opens them, and an example of each view.
-- Statements end with a semicolon at the end of a line. Work of a recording counts once its row is in recordings.

-- Every operation with its job, day, host and rank.
CREATE OR REPLACE VIEW fleet_operations AS
SELECT r.job_name, r.day, r.host_name, r.rank_number, o.recording, o.device, o.stream, o.kind, o.name, o.path,
       o.start AS start_ns, o.gpu_ns, o.bytes,
       CASE WHEN o.kind = 'kernel' AND o.name LIKE 'nccl%' THEN 1 ELSE 0 END AS is_collective
FROM operations o JOIN recordings r ON o.recording = r.recording;

-- What a kernel or copy costs each day, over all ranks: where a regression began.
CREATE OR REPLACE VIEW fleet_work_by_day AS
SELECT job_name, day, kind, name, COUNT(*) AS operations, SUM(gpu_ns) AS gpu_ns, SUM(bytes) AS bytes,
       MAX(gpu_ns) AS longest_ns
FROM fleet_operations GROUP BY job_name, day, kind, name;

-- What each rank's GPU time went to.
CREATE OR REPLACE VIEW fleet_ranks AS
SELECT job_name, day, host_name, rank_number, COUNT(*) AS operations,
       SUM(CASE WHEN kind = 'kernel' AND is_collective = 0 THEN gpu_ns ELSE 0 END) AS compute_ns,
       SUM(CASE WHEN is_collective = 1 THEN gpu_ns ELSE 0 END) AS collective_ns,
       SUM(CASE WHEN kind IN ('copy', 'memset') THEN gpu_ns ELSE 0 END) AS copy_ns,
       SUM(gpu_ns) AS gpu_ns, SUM(bytes) AS bytes
FROM fleet_operations GROUP BY job_name, day, host_name, rank_number;

-- How far each rank's computing is from the mean of its job and day, in thousandths. A straggler computes longer, and
-- spends less in collectives, where the others wait for it.
CREATE OR REPLACE VIEW fleet_imbalance AS
SELECT k.job_name, k.day, k.host_name, k.rank_number, k.compute_ns, k.collective_ns,
       CAST(ROUND(1000.0 * k.compute_ns * m.ranks / m.compute_ns - 1000.0) AS BIGINT) AS compute_above_mean
FROM fleet_ranks k JOIN (
    SELECT job_name, day, COUNT(*) AS ranks, SUM(compute_ns) AS compute_ns FROM fleet_ranks
    GROUP BY job_name, day HAVING SUM(compute_ns) > 0
) m ON k.job_name = m.job_name AND k.day = m.day;

-- The host's time in each range, by rank.
CREATE OR REPLACE VIEW fleet_ranges AS
SELECT r.job_name, r.day, r.host_name, r.rank_number, g.path, COUNT(*) AS instances, SUM(g.host_ns) AS host_ns,
       MAX(g.host_ns) AS longest_ns, SUM(g.is_open) AS open_ranges
FROM ranges g JOIN recordings r ON g.recording = r.recording
GROUP BY r.job_name, r.day, r.host_name, r.rank_number, g.path;

-- Whether a job's day can be trusted: ranks without a recording, and recordings that lack something.
CREATE OR REPLACE VIEW fleet_completeness AS
SELECT job_name, day, COUNT(*) AS recordings, COUNT(DISTINCT rank_number) AS ranks,
       MAX(rank_number) + 1 - COUNT(DISTINCT rank_number) AS missing_ranks,
       SUM(1 - is_complete) AS incomplete, SUM(operations) AS operations
FROM recordings GROUP BY job_name, day;
