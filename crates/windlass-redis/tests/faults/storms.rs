//! One storm per fault, short; `WINDLASS_STORM_ROUNDS` makes them longer.

use windlass_crash::storm::{Fault, Plan, Row, run};

const SEED: u64 = 20_261_116;

async fn storm(fault: Fault) -> Row {
    let rounds = std::env::var("WINDLASS_STORM_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let row = run(Plan { fault, rounds, seed: SEED }).await.unwrap();
    println!("{}\n{row}", Row::HEAD);
    assert!(row.is_clean(), "{row:#?}");
    // A crew that does nothing loses nothing.
    assert!(
        row.findings.jobs >= 30 * u64::from(rounds) && row.findings.executed >= row.findings.jobs - row.findings.lost,
        "{row:#?}"
    );
    row
}

macro_rules! storms {
    ($($name:ident: $fault:ident $(, $more:expr)?;)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let row = storm(Fault::$fault).await;
            $(let more: fn(&Row) -> bool = $more; assert!(more(&row), "the fault was not felt: {row:#?}");)?
            let _ = row;
        })+
    };
}

storms! {
    slow_scripts_that_are_forgotten_are_left_there_again: ScriptFlush;
    slow_killed_connections_lose_nothing: ClientKill, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_two_prefixes_do_not_see_each_others_work: Neighbours;
    slow_a_server_that_stands_still_loses_nothing: Pause;
    slow_a_killed_server_with_every_write_synced_loses_nothing: RestartAlways, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_a_killed_server_with_a_sync_a_second_loses_nothing: RestartEverysec, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_a_server_that_loads_is_waited_for: Loading;
    slow_two_hundred_workers_come_back: Reconnect, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_a_full_memory_is_worked_off: MemoryFull, |row| row.unanswered.full > 0;
    slow_cuts_lose_nothing: Cuts, |row| row.unanswered.unknown > 0;
    slow_swallowed_replies_lose_nothing: Swallowed, |row| row.unanswered.unknown > 0;
    slow_connections_that_are_dead_and_do_not_say_so_are_given_up: HalfOpen, |row| row.unanswered.unknown > 0;
    slow_a_slow_link_loses_nothing: SlowLink;
    slow_sentinels_fail_over: SentinelKill, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_sentinels_fail_over_with_a_confirmed_replica: SentinelKillWait, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_sentinels_fail_over_when_asked: SentinelFailover;
    slow_sentinels_fail_over_when_asked_with_a_confirmed_replica: SentinelFailoverWait;
    slow_a_cluster_fails_over: ClusterKill, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_a_cluster_fails_over_with_a_confirmed_replica: ClusterKillWait, |row| row.unanswered.unknown + row.unanswered.unavailable > 0;
    slow_a_cluster_fails_over_when_asked: ClusterFailover;
    slow_a_slot_that_moves_loses_nothing: SlotMigration;
    slow_half_a_store_is_refused_and_merged: HalfStore, |row| row.unanswered.refused > 0;
}
