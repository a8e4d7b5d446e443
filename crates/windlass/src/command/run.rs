//! A job of steps: prepares its folder, runs one after the other, and hands on what they say.

use super::Commands;
#[cfg(feature = "artifacts")]
use super::artifacts::Handing;
use super::environment::{self, Environment};
use super::error::CommandError;
use super::folder::Folder;
use super::mask::Mask;
use super::outputs::{self, Outputs};
use super::payload::Payload;
use super::shell::command_line;
use super::step::{Around, Halt, Step};
use crate::context::Ctx;
use crate::handler::Returned;
use std::fs;
use std::pin::{Pin, pin};
use std::time::Duration;

/// Runs a job. Nothing that it says contains a secret.
pub(super) async fn run(commands: &Commands, mask: &Mask, ctx: &Ctx) -> Returned {
    let outputs = run_steps(Around { commands, mask, ctx }).await;
    let outputs = outputs.map_err(|error| error.into_job_error().in_words(|words| mask.hide_text(words)))?;
    for (name, value) in outputs {
        ctx.output(name, value);
    }
    Ok(None)
}

async fn run_steps(around: Around<'_>) -> Result<Outputs, CommandError> {
    let ctx = around.ctx;
    let mut halt = pin!(halt(ctx));
    let payload: Payload =
        serde_json::from_slice(&ctx.spec().payload.bytes).map_err(|error| CommandError::Payload(error.to_string()))?;
    let folder = Folder::make(around.commands)?;
    let ended = run_in(&folder, around, &payload, halt.as_mut()).await;
    // A large one takes its time. Where this is not reached, it is removed as it is dropped.
    if let Err(error) = ctx.world.pool.run(move || drop(folder)).await {
        tracing::warn!(job = %ctx.id(), %error, "its folder could not be removed");
    }
    ended
}

/// Returns when the job has to end.
async fn halt(ctx: &Ctx) -> Halt {
    let limit_ms = ctx.spec().timeout_ms;
    let too_long = async {
        match limit_ms {
            Some(limit_ms) => tokio::time::sleep(Duration::from_millis(limit_ms)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = ctx.stopped() => Halt::Told,
        () = too_long => Halt::TimedOut { limit_ms: limit_ms.unwrap_or_default() },
    }
}

async fn run_in(
    folder: &Folder,
    around: Around<'_>,
    payload: &Payload,
    mut halt: Pin<&mut impl Future<Output = Halt>>,
) -> Result<Outputs, CommandError> {
    let Around { commands, mask, ctx } = around;
    let needs = serde_json::to_vec(&payload.needs).map_err(|error| CommandError::Payload(error.to_string()))?;
    fs::write(folder.needs(), needs).map_err(CommandError::file(folder.needs()))?;
    let environment = environment::of_job(commands, ctx, payload, folder)?;
    #[cfg(feature = "artifacts")]
    let handing = Handing::of(around, payload)?;
    #[cfg(feature = "artifacts")]
    if let Some(handing) = &handing {
        in_time(handing.download_all(folder.work()), "the download of artifacts", halt.as_mut()).await?;
    }
    #[cfg(not(feature = "artifacts"))]
    if let Some(name) = payload.artifacts.any() {
        return Err(CommandError::NoArtifacts(name.to_owned()));
    }
    for at in 0..payload.steps.len() {
        let step = prepare(folder, payload, &environment, at)?;
        if payload.steps.len() > 1 {
            ctx.log(mask.hide_text(format!("▸ {}", step.title)));
        }
        step.run(around, halt.as_mut()).await?;
    }
    let outputs = outputs::read(&folder.outputs())?;
    outputs::check(&outputs, &payload.outputs, mask)?;
    #[cfg(feature = "artifacts")]
    if let Some(handing) = &handing {
        in_time(handing.upload_all(folder.work()), "the upload of artifacts", halt.as_mut()).await?;
    }
    Ok(outputs)
}

/// Does it unless the job has to end before.
#[cfg(feature = "artifacts")]
async fn in_time(
    work: impl Future<Output = Result<(), CommandError>>,
    place: &str,
    halt: Pin<&mut impl Future<Output = Halt>>,
) -> Result<(), CommandError> {
    tokio::select! {
        biased;
        why = halt => Err(match why {
            Halt::Told => CommandError::Stopped,
            Halt::TimedOut { limit_ms } => {
                CommandError::TimedOut { place: place.to_owned(), limit_ms, tail: String::new() }
            }
        }),
        done = work => done,
    }
}

fn prepare(folder: &Folder, payload: &Payload, job: &Environment, at: usize) -> Result<Step, CommandError> {
    let step = &payload.steps[at];
    let title = step.title();
    if step.run.contains('\0') {
        return Err(CommandError::ScriptNul(title));
    }
    let environment = environment::of_step(job, step)?;
    let working = folder.working(payload.folder(step))?;
    let script = folder.put_script(at + 1, &step.run)?;
    let line = command_line(payload.shell(step), &script, &working, &environment)?;
    Ok(Step { title, line, folder: working, environment })
}
