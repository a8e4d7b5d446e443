//! Servers as managed services run them: without CONFIG, ACL, MEMORY and SLOWLOG, or with a user who may not run them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::suite::{On, run_where};
use support::{claim, counts, enqueue, job, report};
use windlass_core::store::{Durability, Store as _};
use windlass_redis::doctor::{Depth, Examination, Finding, Severity, examine};
use windlass_redis::{Options, RedisStore};
use windlass_servers::{Fsync, Redis, RedisBuilder};

const DISABLED: [&str; 4] = ["CONFIG", "ACL", "MEMORY", "SLOWLOG"];

/// A server that does not have these commands.
fn without_commands(builder: RedisBuilder) -> RedisBuilder {
    DISABLED.iter().fold(builder, |builder, name| builder.config("rename-command", &format!("{name} \"\"")))
}

/// The rights of the guide's user, without those on the disabled commands, and their password.
fn rights(prefix: &str) -> Vec<String> {
    let guide = include_str!("../../../docs/redis.md");
    let start = guide.find("ACL SETUSER app ").unwrap() + "ACL SETUSER app ".len();
    let block = &guide[start..start + guide[start..].find("```").unwrap()];
    let words = block.split_whitespace().filter(|word| *word != "\\").map(|word| word.trim_matches('\''));
    let words = words.map(|word| word.replace('\\', "").replace("{windlass}", &format!("{{{prefix}}}")));
    let disabled = |word: &String| DISABLED.iter().any(|name| word.starts_with(&format!("+{}|", name.to_lowercase())));
    let rights: Vec<String> = words.filter(|word| !disabled(word)).collect();
    assert!(rights.len() > 40, "{rights:?}");
    rights
}

fn url_of(server: &Redis, rights: &[String]) -> String {
    let password = rights.iter().find_map(|rule| rule.strip_prefix('>')).unwrap();
    format!("redis://app:{password}@127.0.0.1:{}", server.port())
}

async fn look(url: &str) -> Examination {
    examine(&Options::from_url(url).unwrap(), Depth::default()).await.unwrap()
}

#[track_caller]
fn of<'a>(found: &'a Examination, check: &str) -> &'a Finding {
    let of = found.findings.iter().find(|one| one.check == check);
    of.unwrap_or_else(|| panic!("no {check}: {found:#?}"))
}

fn text(one: &Finding) -> String {
    format!("{} | {}", one.message, one.hint.as_deref().unwrap_or_default())
}

/// Nothing that was found is an error or advises a command that the server does not have.
#[track_caller]
fn is_usable_advice(found: &Examination) {
    assert!(found.usable, "{found:#?}");
    for one in &found.findings {
        assert!(one.severity < Severity::Error, "{one:?}");
        for command in ["CONFIG SET", "CONFIG REWRITE", "ACL SETUSER", "MEMORY PURGE"] {
            assert!(!text(one).contains(command), "{one:?}");
        }
    }
}

/// The commands are gone, and the user may run nothing else than the guide grants: the stricter of both at once.
#[test]
fn slow_the_suite_passes_without_config_acl_memory_and_slowlog() {
    let mut rights = rights("suite-*");
    // There is no ACL SETUSER to add the user with.
    rights.retain(|rule| rule != "reset");
    let server =
        without_commands(Redis::builder()).config("user", &format!("app {}", rights.join(" "))).start().unwrap();
    let on = On { url: url_of(&server, &rights), scripts: Box::new(windlass_redis::scripts::all) };
    // Random sequences and long cases send the same commands.
    let ran = run_where(on, |name| !name.contains("model::") && !name.contains("slow_"));
    assert!(ran > 300, "{ran} cases");
}

#[tokio::test]
async fn doctor_advises_what_a_customer_of_a_service_can_do() {
    let server = without_commands(Redis::builder().append_only(Fsync::EverySec)).start().unwrap();
    let store = RedisStore::open_url(&server.url()).unwrap();
    enqueue(&store, vec![job()]).await;
    let found = look(&server.url()).await;
    is_usable_advice(&found);
    let persistence = text(of(&found, "persistence"));
    assert!(persistence.contains("is not known, because the server does not have CONFIG GET"), "{persistence}");
    assert!(text(of(&found, "slowlog")).contains("does not have SLOWLOG GET"), "{found:#?}");
    assert!(text(of(&found, "size")).contains("does not have MEMORY USAGE"), "{found:#?}");
    let absent = found.findings.iter().find(|one| one.check == "rights" && one.severity == Severity::Info).unwrap();
    for name in ["CONFIG GET", "MEMORY USAGE", "SLOWLOG GET"] {
        assert!(absent.message.contains(name), "{absent:?}");
    }
    assert!(of(&found, "rights").message.contains("may do all that the store does"), "{found:#?}");
}

/// Settings that should be changed are named with the place where a customer can change them.
#[tokio::test]
async fn doctor_names_settings_and_their_place_where_there_is_no_config() {
    let builder = Redis::builder().config("maxmemory-policy", "allkeys-lru");
    let server = without_commands(builder).start().unwrap();
    let found = look(&format!("{}?allow_eviction=true", server.url())).await;
    is_usable_advice(&found);
    for (check, setting) in
        [("persistence", "set appendonly to yes"), ("eviction", "set maxmemory-policy to noeviction")]
    {
        let text = text(of(&found, check));
        assert!(text.contains(setting) && text.contains("parameter group or console"), "{text}");
    }
}

#[tokio::test]
async fn doctor_advises_a_user_without_these_rights_the_same() {
    let server = Redis::builder().append_only(Fsync::EverySec).start().unwrap();
    let rights = rights("windlass");
    let words: Vec<&str> = ["ACL", "SETUSER", "app"].into_iter().chain(rights.iter().map(String::as_str)).collect();
    server.command(&words).unwrap();
    let url = url_of(&server, &rights);
    enqueue(&RedisStore::open_url(&url).unwrap(), vec![job()]).await;
    let found = look(&url).await;
    is_usable_advice(&found);
    let persistence = text(of(&found, "persistence"));
    assert!(persistence.contains("the user may not run CONFIG GET"), "{persistence}");
    assert!(persistence.ends_with("grant +config|get to the user"), "{persistence}");
    assert!(text(of(&found, "slowlog")).contains("grant +slowlog|get"), "{found:#?}");
    assert!(text(of(&found, "size")).contains("grant +memory|usage"), "{found:#?}");
}

#[tokio::test]
async fn doctor_advises_config_set_where_the_server_has_it() {
    let server = Redis::builder().config("maxmemory-policy", "allkeys-lru").start().unwrap();
    let found = look(&server.url()).await;
    assert!(text(of(&found, "persistence")).contains("CONFIG SET appendonly yes"), "{found:#?}");
    assert!(text(of(&found, "eviction")).contains("CONFIG SET maxmemory-policy noeviction"), "{found:#?}");
    // Each hint is right.
    for words in [["appendonly", "yes"], ["appendfsync", "always"], ["maxmemory-policy", "noeviction"]] {
        server.command(&["CONFIG", "SET", words[0], words[1]]).unwrap();
    }
    let found = look(&server.url()).await;
    assert_eq!(of(&found, "persistence").severity, Severity::Ok);
    assert!(!found.findings.iter().any(|one| one.check == "eviction"), "{found:#?}");
}

/// What cannot be looked at is not promised.
#[tokio::test]
async fn info_promises_only_what_can_be_determined() {
    let class = async |builder: RedisBuilder| {
        let server = without_commands(builder).start().unwrap();
        let info = RedisStore::open_url(&server.url()).unwrap().info().await.unwrap();
        let detail = |name: &str| info.details.iter().find(|(key, _)| key == name).unwrap().1.clone();
        (info.durability, detail("append-only file"), detail("fsync"))
    };
    let unknown = |durability, file: &str, fsync: &str| (durability, file.to_owned(), fsync.to_owned());
    for fsync in [Fsync::Always, Fsync::EverySec] {
        let found = class(Redis::builder().append_only(fsync)).await;
        assert_eq!(found, unknown(Durability::Process, "yes", "unknown"), "{fsync:?}");
    }
    assert_eq!(class(Redis::builder()).await, unknown(Durability::None, "no", "-"));
}

#[tokio::test]
async fn a_store_works_without_config_acl_memory_and_slowlog() {
    let server = without_commands(Redis::builder()).start().unwrap();
    let store = RedisStore::open_url(&server.url()).unwrap();
    enqueue(&store, (0..10).map(|_| job()).collect()).await;
    for claimed in claim(&store, "w", 10).await {
        report(&store, "w", claimed.lease).await.unwrap();
    }
    assert_eq!(counts(&store).await.succeeded, 10);
    for name in DISABLED {
        let refused = server.command(&[name, "HELP"]).unwrap_err().to_string();
        assert!(refused.contains("unknown command"), "{name}: {refused}");
    }
}
