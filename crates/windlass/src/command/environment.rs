//! What commands find in their environment: nothing but what is put there.

use super::error::CommandError;
use super::folder::Folder;
use super::payload::{Payload, Step, text_of};
use super::{Commands, Place};
use crate::context::Ctx;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Where programs are looked for when the worker itself does not know.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Text is UTF-8, and sorts the same everywhere.
const LOCALE: &str = "C.UTF-8";

pub(super) type Environment = BTreeMap<String, OsString>;

/// Whether every shell takes this as the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(fits)
}

/// What all steps of a job share. What comes later counts: secrets, and then what the workflow says itself.
pub(super) fn of_job(
    commands: &Commands,
    ctx: &Ctx,
    payload: &Payload,
    folder: &Folder,
) -> Result<Environment, CommandError> {
    let mut all = of_worker(commands, folder);
    let mut put = |name: &str, value: OsString| all.insert(name.to_owned(), value);
    put("WINDLASS", "1".into());
    put("WINDLASS_JOB", ctx.id().to_string().into());
    put("WINDLASS_ATTEMPT", ctx.attempt().to_string().into());
    put("WINDLASS_OUTPUT", folder.outputs().into());
    put("WINDLASS_NEEDS", folder.needs().into());
    let run = &payload.run;
    for (name, value) in [("WINDLASS_RUN", &run.id), ("WINDLASS_WORKFLOW", &run.workflow), ("WINDLASS_NODE", &run.node)]
    {
        if let Some(value) = value {
            put(name, value.into());
        }
    }
    for (job, need) in &payload.needs {
        for (key, value) in need.get("outputs").and_then(Json::as_object).into_iter().flatten() {
            put(&variable(&["NEEDS", job, key]), text_of(value).into());
        }
    }
    for (key, value) in run.matrix.iter().flatten() {
        put(&variable(&["MATRIX", key]), text_of(value).into());
    }
    for (name, value) in &commands.secrets {
        put(name, value.into());
    }
    put_all(&mut all, &payload.env)?;
    check(&all)?;
    Ok(all)
}

/// What a step has beside it.
pub(super) fn of_step(job: &Environment, step: &Step) -> Result<Environment, CommandError> {
    let mut all = job.clone();
    put_all(&mut all, &step.env)?;
    check(&all)?;
    Ok(all)
}

fn of_worker(commands: &Commands, folder: &Folder) -> Environment {
    let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let mut all = Environment::new();
    all.insert("PATH".to_owned(), own("PATH").unwrap_or_else(|| PATH.into()));
    let home = match &commands.place {
        Place::Fixed(_) => own("HOME"),
        Place::Fresh(_) => None,
    };
    all.insert("HOME".to_owned(), home.unwrap_or_else(|| folder.work().into()));
    all.insert("TMPDIR".to_owned(), folder.temporary().into());
    let locale = ["LANG", "LC_ALL"].map(|name| (name, own(name)));
    let unset = locale.iter().all(|(_, value)| value.is_none());
    for (name, value) in locale {
        if let Some(value) = value.or_else(|| unset.then(|| LOCALE.into())) {
            all.insert(name.to_owned(), value);
        }
    }
    let passed = commands.passed.iter().filter_map(|name| Some((name.clone(), std::env::var_os(name)?)));
    all.extend(passed);
    all
}

fn put_all(all: &mut Environment, more: &BTreeMap<String, Json>) -> Result<(), CommandError> {
    for (name, value) in more {
        if !is_name(name) {
            return Err(CommandError::VariableName(name.escape_debug().to_string()));
        }
        all.insert(name.clone(), text_of(value).into());
    }
    Ok(())
}

fn check(all: &Environment) -> Result<(), CommandError> {
    match all.iter().find(|(_, value)| value.as_bytes().contains(&0)) {
        Some((name, _)) => Err(CommandError::VariableNul(name.clone())),
        None => Ok(()),
    }
}

/// The name of a variable, made of names that are none.
fn variable(parts: &[&str]) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    parts.join("_").chars().map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_every_shell_takes() {
        assert!(["A", "_a1", "PATH"].iter().all(|name| is_name(name)));
        assert!(!["", "1A", "A-B", "A=B", "Ä", "A B", "A\0"].iter().any(|name| is_name(name)));
    }

    #[test]
    fn other_names_are_made_to_fit() {
        assert_eq!(variable(&["NEEDS", "build-all", "version.é"]), "NEEDS_BUILD_ALL_VERSION__");
    }
}
