//! What a server says, as one of our errors: the one place that reads the texts of Redis.

use crate::options::Node;
use windlass_core::Error;

const ASKS_PASSWORD: &str = "the server asks for a password; write redis://user:password@host";
const WRONG_PASSWORD: &str = "does not accept the user or the password";
const HAS_NO_PASSWORD: &str = "a password was given and the server has none; leave it out, or set one at the server";
const FORBIDDEN: &str = "the server's access control list";
const AT_SIGN: &str = "write @ : / inside a password as %40 %3A %2F";

/// What an error of the server asks for. Nothing was applied, except where `Final` says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The script is not known there (any more): load it.
    NoScript,
    /// The slot belongs to another node for good.
    Moved(String),
    /// The slot is on its way, and this call is for the node it goes to.
    Ask(String),
    /// The slot is on its way, and its keys are on both sides: in a moment.
    TryAgain(Error),
    /// The server cannot do it now and another one may: it is no primary (any more), or its cluster is not whole.
    Elsewhere(Error),
    /// The call's answer.
    Final(Error),
}

impl Refusal {
    /// The answer to give when what it asks for was of no avail.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::NoScript => unavailable("the server forgets our scripts as fast as they are loaded"),
            Self::Moved(_) | Self::Ask(_) => unavailable("the cluster moves the store's slot"),
            Self::TryAgain(error) | Self::Elsewhere(error) | Self::Final(error) => error,
        }
    }
}

pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable { reason: reason.into() }
}

pub(crate) fn unknown(reason: impl Into<String>) -> Error {
    Error::Unknown { reason: reason.into() }
}

pub(crate) fn timeout(reason: impl Into<String>) -> Error {
    Error::Timeout { reason: reason.into() }
}

pub(crate) fn incompatible(what: impl Into<String>) -> Error {
    Error::Incompatible { what: what.into() }
}

/// A store that a newer version has laid out in its own way.
pub(crate) fn newer_layout(layout: &str) -> Error {
    let known = crate::scripts::LAYOUT;
    incompatible(format!(
        "the store has layout {layout}, and this version knows layouts up to {known}; upgrade this program, or give it \
         another prefix"
    ))
}

/// Reads an error of the server: its first word, and what stands behind it.
pub(crate) fn read(code: &str, detail: &str) -> Refusal {
    let said = said(code, detail);
    match code {
        "NOSCRIPT" => Refusal::NoScript,
        "MOVED" | "ASK" => match detail.split_ascii_whitespace().nth(1) {
            Some(node) if code == "MOVED" => Refusal::Moved(node.to_owned()),
            Some(node) => Refusal::Ask(node.to_owned()),
            None => Refusal::Final(Error::corrupt(format!("the server redirects nowhere: {said}"))),
        },
        "TRYAGAIN" => Refusal::TryAgain(unavailable(format!("the cluster moves the store's slot ({said})"))),
        "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "UNBLOCKED" => Refusal::Elsewhere(unavailable(said)),
        _ => Refusal::Final(read_final(code, detail, said)),
    }
}

fn read_final(code: &str, detail: &str, said: String) -> Error {
    match code {
        "LOADING" => unavailable(format!("the server is loading its data ({said})")),
        // It is there, and answers nothing until the script has ended.
        "BUSY" => unavailable(format!("the server is busy with a script ({said})")),
        "NOREPLICAS" => unavailable(format!("too few replicas are in step (min-replicas-to-write: {said})")),
        "MISCONF" => unavailable(format!("the server cannot write its disk and refuses changes ({said})")),
        "OOM" => Error::Full { what: format!("the server's memory ({said}; raise its maxmemory, or delete old jobs)") },
        "NOAUTH" => Error::invalid("store", ASKS_PASSWORD),
        "WRONGPASS" => Error::invalid("store", format!("the server {WRONG_PASSWORD}; check them, and {AT_SIGN}")),
        "NOPERM" => forbidden(detail),
        "DENIED" => Error::invalid(
            "store",
            "the server is in protected mode and takes no calls from other machines; give it \
                                             a password, or name the address it is to listen on",
        ),
        "WRONGTYPE" => {
            Error::corrupt(format!("a key of the store holds something else ({said}); choose another prefix"))
        }
        "NOPROTO" => incompatible(format!("the server is too old ({said}); Redis 7.0 or later is needed")),
        // Our own scripts say these.
        "DAMAGED" => Error::corrupt(detail.split(" script: ").next().unwrap_or(detail)),
        "HALF" => {
            let names = detail.split(" script: ").next().unwrap_or(detail).trim().replace(' ', ", ");
            crate::whole::half("meta", &names)
        }
        "LAYOUT" => newer_layout(detail.split_ascii_whitespace().next().unwrap_or("?")),
        "ERR" => read_general(detail, &said),
        _ => Error::corrupt(said),
    }
}

/// Errors without a code of their own.
fn read_general(detail: &str, said: &str) -> Error {
    let is = |text: &str| detail.contains(text);
    if is("ACL failure in script") || is("The user executing the script can't") {
        forbidden_in_script(detail)
    } else if is("no permissions to run the") {
        forbidden(detail)
    } else if is("The ID specified in XADD is equal or smaller") {
        Error::corrupt(format!(
            "the feed is ahead of its counter, because a change was stopped half-way; `windlass doctor` says how to set it \
             right ({said})"
        ))
    } else if is("max number of clients reached") {
        unavailable(format!("the server has too many clients ({detail}); raise its maxclients"))
    } else if is("DB index is out of range") || is("invalid DB index") || is("SELECT is not allowed in cluster mode") {
        Error::invalid(
            "store",
            format!("the server has no such database ({said}); choose another number behind the host"),
        )
    } else if is("Script killed by user") {
        // Redis kills only scripts that have not written.
        unavailable(format!("somebody stopped the script ({said})"))
    } else if is("without any password configured") {
        Error::invalid("store", HAS_NO_PASSWORD)
    } else if is("unknown command") || is("unknown subcommand") || is("Unknown subcommand") {
        incompatible(format!(
            "the server does not know a command ({said}); Redis 7.0 or later is needed, with no command \
                              renamed"
        ))
    } else {
        Error::corrupt(format!("the server cannot run a script: {said}"))
    }
}

fn forbidden(detail: &str) -> Error {
    // "… has no permissions to run the 'select' command"
    let command = detail.split_once(" run the '").and_then(|(_, rest)| rest.split_once('\'')).map(|(name, _)| name);
    let grant = match command {
        Some(name) => format!("grant the user +{name}, and what else the guide lists"),
        None => "grant the user the commands, and the keys and channels {prefix}*, that the guide lists".to_owned(),
    };
    Error::invalid(
        "store",
        format!("{FORBIDDEN} forbids it ({detail}); {grant}; `windlass doctor` names what is missing"),
    )
}

/// The rights were there when the connection was made, or could not be asked for.
fn forbidden_in_script(detail: &str) -> Error {
    Error::invalid(
        "store",
        format!(
            "{FORBIDDEN} forbids a part of it, which was stopped there ({detail}); `windlass doctor` names what to grant the \
             user, and whether the store still fits together"
        ),
    )
}

/// The user lacks these rights, written as one grants them. Nothing was done.
pub(crate) fn not_granted(missing: &[&str]) -> Error {
    Error::invalid(
        "store",
        format!(
            "{FORBIDDEN} does not allow the user all that the store needs: {}; grant it with ACL SETUSER (docs/redis.md has \
             the whole line), `windlass doctor` names all that is missing",
            missing.join(" ")
        ),
    )
}

/// What a Sentinel says, which has users of its own.
pub(crate) fn at_sentinel(node: &Node, error: Error) -> Error {
    let Error::Invalid { field, reason } = error else { return error };
    let reason = if reason == ASKS_PASSWORD {
        format!("the Sentinel {node} asks for a password; write sentinel_password=… into the URL, {AT_SIGN}")
    } else if reason == HAS_NO_PASSWORD {
        format!("sentinel_password was given and the Sentinel {node} has none; leave it out")
    } else if reason.contains(WRONG_PASSWORD) {
        format!("the Sentinel {node} does not accept sentinel_user or sentinel_password; check them, and {AT_SIGN}")
    } else if let Some(rest) = reason.strip_prefix(FORBIDDEN) {
        format!("the access control list of the Sentinel {node}{rest}")
    } else {
        reason
    };
    Error::Invalid { field, reason }
}

/// The server's words, without the arguments that it repeats when it does not know a command: a password may be among them.
fn said(code: &str, detail: &str) -> String {
    let detail = detail.split_once(", with args beginning with").map_or(detail, |(before, _)| before);
    if detail.is_empty() { code.to_owned() } else { format!("{code} {detail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Refusal {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        read(code, detail)
    }

    fn error(text: &str) -> Error {
        match of(text) {
            Refusal::Final(error) | Refusal::Elsewhere(error) | Refusal::TryAgain(error) => error,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_can_be_tried_again_says_so() {
        for text in [
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "CLUSTERDOWN Hash slot not served",
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: 5c6e, on @user_script:1.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "NOREPLICAS Not enough good replicas to write.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "ERR max number of clients reached",
            "ERR Error running script: Script killed by user with SCRIPT KILL.",
        ] {
            assert!(matches!(error(text), Error::Unavailable { .. }), "{text}: {:?}", of(text));
        }
        assert!(matches!(of("READONLY x"), Refusal::Elsewhere(_)));
        assert!(matches!(of("CLUSTERDOWN x"), Refusal::Elsewhere(_)));
        assert!(matches!(of("TRYAGAIN x"), Refusal::TryAgain(_)));
    }

    #[test]
    fn a_busy_server_has_done_nothing() {
        let busy = error("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
        assert!(matches!(&busy, Error::Unavailable { reason } if reason.contains("busy with a script")), "{busy:?}");
        assert!(busy.is_retryable());
    }

    #[test]
    fn a_sentinel_that_refuses_is_named() {
        let node = Node::new("h", 7);
        for (text, words) in [
            ("NOAUTH Authentication required.", "sentinel_password="),
            ("WRONGPASS invalid username-password pair or user is disabled.", "sentinel_user or sentinel_password"),
            ("ERR AUTH <password> called without any password configured for the default user.", "leave it out"),
            ("NOPERM this user has no permissions to run the 'sentinel' command", "'sentinel'"),
        ] {
            let said = at_sentinel(&node, error(text)).to_string();
            assert!(said.contains("the Sentinel h:7") && said.contains(words), "{said}");
        }
    }

    #[test]
    fn redirections_name_a_node() {
        assert_eq!(of("MOVED 3999 127.0.0.1:6381"), Refusal::Moved("127.0.0.1:6381".to_owned()));
        assert_eq!(of("ASK 3999 ::1:6381"), Refusal::Ask("::1:6381".to_owned()));
        assert_eq!(of("NOSCRIPT No matching script. Please use EVAL."), Refusal::NoScript);
        assert!(matches!(error("MOVED"), Error::Corrupt { .. }));
    }

    #[test]
    fn a_full_memory_says_what_to_do() {
        let Error::Full { what } = error("OOM command not allowed when used memory > 'maxmemory'.") else { panic!() };
        assert!(what.contains("raise its maxmemory"), "{what}");
    }

    #[test]
    fn rights_say_what_to_grant() {
        for (text, advice) in [
            ("NOAUTH Authentication required.", "user:password@"),
            ("NOAUTH HELLO must be called with the client already authenticated, otherwise", "user:password@"),
            ("WRONGPASS invalid username-password pair or user is disabled.", "%40"),
            ("NOPERM this user has no permissions to run the 'evalsha' command", "'evalsha'"),
            ("NOPERM No permissions to access a key", "access a key"),
            (
                "ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
                "`windlass doctor` names what to grant",
            ),
            ("ERR ACL failure in script: User u has no permissions to run the 'get' command", "windlass doctor"),
            // As the library passes on what a server says to SELECT.
            ("ERR this user has no permissions to run the 'select' command", "+select"),
            ("ERR User u has no permissions to run the 'select' command", "+select"),
            ("ERR DB index is out of range", "another number"),
            ("ERR AUTH <password> called without any password configured for the default user.", "leave it out"),
            ("DENIED Redis is running in protected mode because protected mode is enabled", "protected mode"),
        ] {
            let Error::Invalid { field, reason } = error(text) else { panic!("{text}: {:?}", of(text)) };
            assert!(field == "store" && reason.contains(advice), "{reason}");
        }
    }

    #[test]
    fn an_old_server_does_not_fit_and_arguments_are_not_repeated() {
        let text = "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'hunter2' ";
        let Error::Incompatible { what } = error(text) else { panic!() };
        assert!(what.contains("7.0") && !what.contains("hunter2"), "{what}");
        assert!(matches!(error("NOPROTO unsupported protocol version"), Error::Incompatible { .. }));
    }

    #[test]
    fn the_rest_is_damage_with_the_servers_words() {
        for text in [
            "ERR user_script:1: attempt to index a nil value script: 5c6e, on @user_script:1.",
            "ERR Script attempted to access a non local key in a cluster node script: 1, on @user_script:1.",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "NEWERROR from a later version",
        ] {
            let Error::Corrupt { what } = error(text) else { panic!("{text}: {:?}", of(text)) };
            let (_, words) = text.split_once(' ').unwrap();
            assert!(what.contains(words), "{what}");
        }
        let ahead = "ERR The ID specified in XADD is equal or smaller than the target stream top item script: 1, on @user_script:1.";
        assert!(error(ahead).to_string().contains("windlass doctor"), "{:?}", error(ahead));
    }
}
