//! Groups as they are listed.

use crate::ctx::{Ctx, queue_name};
use crate::look::{cap, group};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::store::{GroupSettings, GroupsRequest, Setting};

cases!("groups":
    a_group_is_listed_with_its_work,
    an_idle_group_vanishes,
    a_group_with_settings_stays,
    groups_are_paged_by_name,
    groups_of_an_unknown_queue_are_not_found,
    settings_that_cannot_be_meant_are_refused,
);

async fn a_group_is_listed_with_its_work(ctx: Ctx) {
    ctx.enqueue_grouped("q", "b", 3).await;
    ctx.enqueue_grouped("q", "a", 2).await;
    ctx.enqueue_grouped("other", "c", 1).await;
    ctx.enqueue_plain("q", 4).await;
    let taken = ctx.claim("w", "q", 3).await;
    let listed: Vec<_> = ctx.groups("q").await.into_iter().map(|g| (g.name.to_string(), g.ready + g.active)).collect();
    assert_eq!(listed, [("a".to_owned(), 2), ("b".to_owned(), 3)]);
    let counts = crate::look::by_group(&taken);
    for status in ctx.groups("q").await {
        assert_eq!(status.active, counts[status.name.as_str()] as u64);
        assert_eq!(status.rate_limited_until, None);
    }
}

async fn an_idle_group_vanishes(ctx: Ctx) {
    ctx.enqueue_grouped("q", "g", 2).await;
    ctx.work_one("w", "q").await;
    assert_eq!(ctx.groups("q").await.len(), 1);
    ctx.work_one("w", "q").await;
    assert_eq!(ctx.groups("q").await, []);
    let id = ctx.enqueue_grouped("q", "g", 1).await[0];
    ctx.change(id, windlass_core::store::ChangeOp::Cancel).await.unwrap();
    assert_eq!(ctx.groups("q").await, [], "a cancelled job leaves nothing");
    let id = ctx.enqueue_grouped("q", "g", 1).await[0];
    ctx.change(id, windlass_core::store::ChangeOp::Remove).await.unwrap();
    assert_eq!(ctx.groups("q").await, [], "a removed job leaves nothing");
}

async fn a_group_with_settings_stays(ctx: Ctx) {
    ctx.set_group("q", "g", cap(5)).await;
    assert_eq!(ctx.group_status("q", "g").await.unwrap().settings, cap(5), "before it has work");
    ctx.enqueue_grouped("q", "g", 1).await;
    ctx.work_one("w", "q").await;
    assert!(ctx.group_status("q", "g").await.is_some(), "after it has had work");
    ctx.set_group("q", "g", GroupSettings::default()).await;
    assert_eq!(ctx.groups("q").await, [], "until it is told to forget them");
}

async fn groups_are_paged_by_name(ctx: Ctx) {
    let mut names: Vec<String> = (0..25).map(|n| format!("group-{n}")).collect();
    for name in &names {
        ctx.enqueue_grouped("q", name, 1).await;
    }
    names.sort();
    let page = async |after: Option<&str>, limit| {
        let request = GroupsRequest { queue: queue_name("q"), after: after.map(group), limit };
        ctx.store.groups(request).await.unwrap()
    };
    let (mut got, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
    loop {
        let page = page(after.as_deref(), 10).await;
        assert!(page.groups.len() <= 10);
        got.extend(page.groups.iter().map(|status| status.name.to_string()));
        after = got.last().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!(got, names);
    assert_eq!(page(Some("group-5x"), 1).await.groups[0].name.as_str(), "group-6", "any name will do to go on from");
    assert_eq!(page(Some("zzz"), 10).await.groups, []);
    for limit in [0, 1_001] {
        let request = GroupsRequest { queue: queue_name("q"), after: None, limit };
        assert!(matches!(ctx.store.groups(request).await, Err(Error::Invalid { .. })));
    }
}

async fn groups_of_an_unknown_queue_are_not_found(ctx: Ctx) {
    let request = GroupsRequest { queue: queue_name("none"), after: None, limit: 10 };
    assert!(ctx.store.groups(request).await.unwrap_err().is_not_found());
}

async fn settings_that_cannot_be_meant_are_refused(ctx: Ctx) {
    use windlass_core::rate::{RATE_WINDOW_MS_MAX, Rate};
    let rate = |limit, per_ms| GroupSettings { rate: Some(Rate { limit, per_ms }), ..GroupSettings::default() };
    let bad = [
        cap(0),
        crate::look::weight(0),
        crate::look::weight(1_001),
        rate(0, 1_000),
        rate(1, 0),
        rate(1, RATE_WINDOW_MS_MAX + 1),
    ];
    for settings in bad {
        let setting = Setting::Group { queue: queue_name("q"), group: group("g"), settings };
        let refused = ctx.store.configure(setting).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{settings:?}: {refused:?}");
    }
    assert_eq!(ctx.store.queues().await.unwrap(), [], "nothing was changed");
}
