//! Messages and reports, one after the other, and what follows from them.

use super::*;

fn node(port: u16) -> Node {
    Node::new("h", port)
}

fn promoting(replaced: u16) -> Announcement {
    Announcement::Promoting { replaced: node(replaced) }
}

fn report(primary: u16, epoch: u64) -> Report {
    Report { primary: Some(node(primary)), epoch: Some(epoch), ..Report::default() }
}

/// Three Sentinels on ports 91 to 93; the primary is on port 1, with epoch 5.
fn view(now: Instant) -> View {
    let mut view = View::default();
    for port in 91..=93 {
        assert!(view.add(&node(port)));
        assert_eq!(view.apply_answer(&node(port), 0, Ok(report(1, 5)), now), Effect::Nothing);
    }
    view
}

#[expect(clippy::disallowed_methods, reason = "any instant will do: only differences count")]
fn start() -> Instant {
    Instant::now()
}

const STEP: Duration = Duration::from_millis(100);

#[test]
fn a_promotion_fences_until_the_new_primary_is_announced() {
    let now = start();
    let mut view = view(now);
    let before = view.generation();
    assert_eq!(view.apply_announcement(&node(92), &promoting(1), None, now), Effect::EndAll);
    assert_eq!(view.fence(now), Some(now + FENCE));
    assert!(view.generation() > before, "a connection that was begun before does not count");
    assert_eq!(
        view.apply_announcement(&node(92), &promoting(1), None, now + STEP),
        Effect::Nothing,
        "the same failover"
    );
    assert_eq!(view.fence(now + STEP), Some(now + STEP + FENCE), "it is extended");
    let fenced = view.generation();
    let effect = view.apply_announcement(&node(92), &Announcement::Promoted(node(2)), Some(6), now + STEP);
    assert_eq!(effect, Effect::EndOthers(node(2)));
    assert!(view.generation() > fenced);
    assert_eq!((view.fence(now + STEP), view.announced(now + STEP)), (None, Some(node(2))));
}

#[test]
fn a_fence_ends_with_its_time_or_with_the_failover() {
    let now = start();
    let mut view = view(now);
    let _ = view.apply_announcement(&node(92), &promoting(1), None, now);
    assert_eq!(view.fence(now + FENCE), None);
    let again = now + FENCE + STEP;
    assert_eq!(view.apply_announcement(&node(92), &promoting(1), None, again), Effect::EndAll, "another failover");
    let aborted = |replaced| Announcement::Aborted { replaced: node(replaced) };
    assert_eq!(view.apply_announcement(&node(91), &aborted(9), None, again), Effect::Nothing);
    assert!(view.fence(again).is_some(), "the failover of another node");
    assert_eq!(view.apply_announcement(&node(92), &aborted(1), None, again), Effect::Nothing);
    assert_eq!(view.fence(again), None);
    assert_eq!(view.announced(again), None);
}

/// A Sentinel that lost the election, or was told to fail over as well, gives up while the one that leads goes on.
#[test]
fn a_fence_is_lifted_only_when_every_sentinel_that_selected_a_replica_has_given_up() {
    let now = start();
    let mut view = view(now);
    let aborted = Announcement::Aborted { replaced: node(1) };
    let _ = view.apply_announcement(&node(92), &promoting(1), None, now);
    let _ = view.apply_announcement(&node(91), &aborted, None, now);
    assert!(view.fence(now).is_some(), "it has selected no replica");
    // Two that lead a failover, one of them known by its report only.
    let report = Report { is_promoting: true, ..report(1, 5) };
    let _ = view.apply_answer(&node(93), 0, Ok(report), now);
    let _ = view.apply_announcement(&node(92), &aborted, None, now);
    assert!(view.fence(now).is_some(), "the other one goes on");
    let _ = view.apply_announcement(&node(93), &aborted, None, now);
    assert_eq!(view.fence(now), None);
    // One that is not heard of any more does not count in the next failover.
    let _ = view.apply_announcement(&node(91), &promoting(1), None, now);
    let later = now + FENCE;
    let _ = view.apply_announcement(&node(92), &promoting(1), None, later);
    let _ = view.apply_announcement(&node(92), &aborted, None, later);
    assert_eq!(view.fence(later), None);
}

#[test]
fn a_late_announcement_of_the_last_switch_does_not_lift_the_fence_of_the_next() {
    let now = start();
    let mut view = view(now);
    let _ = view.apply_announcement(&node(92), &Announcement::Promoted(node(2)), Some(6), now);
    let _ = view.apply_announcement(&node(92), &promoting(2), None, now + STEP);
    for (late, epoch) in [(node(2), Some(6)), (node(2), None), (node(1), Some(5))] {
        let effect = view.apply_announcement(&node(92), &Announcement::Promoted(late), epoch, now + STEP);
        assert_eq!(effect, Effect::Nothing);
        assert!(view.fence(now + STEP).is_some());
    }
    assert_eq!(view.announced(now + STEP), Some(node(2)));
    let back = view.apply_announcement(&node(92), &Announcement::Promoted(node(1)), Some(7), now + STEP);
    assert_eq!((back, view.fence(now + STEP)), (Effect::EndOthers(node(1)), None));
}

#[test]
fn a_switch_that_was_not_heard_is_found_in_a_report() {
    let now = start();
    let mut view = view(now);
    assert_eq!(view.apply_answer(&node(91), 0, Ok(report(2, 6)), now), Effect::EndOthers(node(2)));
    assert_eq!(view.apply_answer(&node(92), 0, Ok(report(1, 5)), now), Effect::Nothing, "an outdated one");
    assert_eq!(view.candidates(now), [node(2), node(1)]);
    // A report with a switch that was missed and with the failover that follows it.
    let both = Report { is_promoting: true, ..report(3, 7) };
    assert_eq!(view.apply_answer(&node(91), 0, Ok(both), now), Effect::EndAll);
    assert!(view.fence(now).is_some());
    // A failover that is under way when the first Sentinel is reached.
    let mut other = View::default();
    other.add(&node(91));
    let promoting = Report { is_promoting: true, ..report(1, 5) };
    assert_eq!(other.apply_answer(&node(91), 0, Ok(promoting.clone()), now), Effect::EndAll);
    let later = now + FENCE + STEP;
    assert_eq!(other.apply_answer(&node(91), 0, Ok(promoting), later), Effect::Nothing, "it is fenced once");
}

#[test]
fn an_outdated_sentinel_is_outvoted_and_an_announcement_is_preferred_for_a_while() {
    let now = start();
    let mut all = view(now);
    let _ = all.apply_answer(&node(91), 0, Ok(report(9, 2)), now);
    assert_eq!(all.candidates(now), [node(1), node(9)], "a lower epoch is the last resort");
    let effect = all.apply_announcement(&node(91), &promoting(9), None, now);
    assert_eq!(effect, Effect::Nothing, "it watches over another node");
    // One with a higher epoch is tried first, and then the one that most Sentinels name. It is not announced by that.
    let _ = all.apply_answer(&node(91), 0, Ok(report(9, 8)), now);
    assert_eq!((all.announced(now), all.candidates(now)), (None, vec![node(9), node(1)]));
    let announced = all.apply_announcement(&node(91), &Announcement::Promoted(node(9)), Some(9), now);
    assert_eq!(announced, Effect::EndOthers(node(9)));
    let later = now + PREFERRED;
    assert_eq!((all.announced(now), all.announced(later)), (Some(node(9)), None));
    assert_eq!((all.candidates(now), all.candidates(later)), (vec![node(9)], vec![node(9), node(1)]));
    let _ = all.apply_answer(&node(92), 0, Ok(report(11, 9)), now);
    let effect = all.apply_announcement(&node(92), &promoting(11), None, now);
    assert_eq!(effect, Effect::EndAll, "the same configuration under another address");
    // Without epochs, the most votes.
    let mut plain = View::default();
    for (port, primary) in [(91, 7), (92, 8), (93, 8)] {
        plain.add(&node(port));
        let report = Report { primary: Some(node(primary)), ..Report::default() };
        assert_eq!(plain.apply_answer(&node(port), 0, Ok(report), now), Effect::Nothing);
    }
    assert_eq!(plain.candidates(now), [node(8), node(7)]);
    let _ = plain.apply_announcement(&node(92), &Announcement::Promoted(node(7)), None, now);
    let _ = plain.apply_answer(&node(92), 0, Ok(report(8, 3)), now);
    assert_eq!(plain.announced(now), Some(node(7)), "a report that differs may be older");
}

#[test]
fn questions_are_answered_by_reports_and_by_failures() {
    let now = start();
    let mut view = view(now);
    let question = view.ask();
    assert_eq!(view.progress(question), (3, 0));
    let error = || Error::Unavailable { reason: "down".to_owned() };
    let _ = view.apply_answer(&node(91), question, Err(error()), now);
    let _ = view.apply_answer(&node(92), question, Ok(report(1, 5)), now);
    assert_eq!(view.progress(question), (1, 1));
    let invalid = Error::invalid("store", "no such service");
    let _ = view.apply_answer(&node(93), question, Err(invalid.clone()), now);
    assert_eq!((view.progress(question), view.error()), ((0, 1), Some(invalid)));
    view.remove(&node(92));
    assert_eq!(view.progress(question), (0, 0));
}

#[test]
fn replicas_that_one_sentinel_sees_are_counted() {
    let now = start();
    let mut view = view(now);
    assert_eq!(view.replicas_up(), None);
    let up = |port, is_attached| Replica { node: node(port), is_attached };
    let with = |replicas: &[Replica], report: Report| Ok(Report { replicas_up: Some(replicas.to_vec()), ..report });
    let _ = view.apply_answer(&node(91), 0, with(&[up(2, true)], report(1, 5)), now);
    // One that was just promoted counts until its promotion is announced: it does not confirm any more.
    let _ = view.apply_answer(&node(92), 0, with(&[up(2, false), up(3, true)], report(1, 5)), now);
    assert_eq!(view.replicas_up(), Some(2));
    // The old primary does not follow the new one yet.
    for port in 91..=93 {
        let _ = view.apply_answer(&node(port), 0, with(&[up(1, false), up(3, true)], report(2, 6)), now);
    }
    assert_eq!(view.replicas_up(), Some(1));
    let _ = view.apply_answer(&node(91), 0, with(&[up(1, true), up(3, false)], report(2, 6)), now);
    assert_eq!(view.replicas_up(), Some(2));
    let _ = view.apply_answer(&node(91), 0, with(&[up(1, false), up(3, false)], report(2, 6)), now);
    assert_eq!(view.replicas_up(), Some(2), "once it was attached, it is a replica as any other");
    // Until the other replicas follow the new primary, the Sentinel that leads the failover lists it as a promoted replica.
    for port in 91..=93 {
        let _ = view.apply_answer(&node(port), 0, with(&[up(2, true), up(3, true)], report(2, 6)), now);
    }
    assert_eq!(view.replicas_up(), Some(1), "the primary does not confirm its own changes");
    // Two Sentinels that see one each; and one that watches over another node.
    let _ = view.apply_answer(&node(91), 0, with(&[up(3, true)], report(2, 6)), now);
    let _ = view.apply_answer(&node(92), 0, with(&[up(1, true)], report(2, 6)), now);
    let _ = view.apply_answer(&node(93), 0, with(&[up(7, true), up(8, true), up(9, true)], report(4, 2)), now);
    assert_eq!(view.replicas_up(), Some(2));
}

#[test]
fn a_sentinel_under_two_addresses_is_recognised() {
    let now = start();
    let mut view = view(now);
    let with_id = Report { id: Some("a".to_owned()), ..report(1, 5) };
    let _ = view.apply_answer(&node(91), 0, Ok(with_id), now);
    assert!(view.has_id("a", &node(99)) && !view.has_id("a", &node(91)) && !view.has_id("b", &node(99)));
    assert!(!view.add(&node(91)));
    let added = (100..200).filter(|port| view.add(&node(*port))).count();
    assert_eq!(added, SENTINELS_MAX - 3);
}
