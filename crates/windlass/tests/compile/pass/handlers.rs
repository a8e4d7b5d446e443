//! What is right is right with the attribute, too.

use serde::{Deserialize, Serialize};
use windlass::{Ctx, Job, JobError, State};

#[derive(Serialize, Deserialize, Job)]
#[job(unique = self.number, group = &self.tenant, id = format!("{}-{}", self.tenant, self.number))]
struct Invoice {
    tenant: String,
    number: u32,
}

#[windlass::handler]
async fn nothing(_job: Invoice) {}

#[windlass::handler]
pub(crate) async fn everything(
    Invoice { number, .. }: Invoice,
    _ctx: Ctx,
    State(settings): State<u32>,
    _text: State<String>,
) -> Result<(), JobError> {
    std::future::ready(number + *settings).await;
    Ok(())
}

#[windlass::handler]
async fn any_error(job: Invoice) -> Result<(), std::num::ParseIntError> {
    job.tenant.parse::<u32>().map(drop)
}

fn main() {
    let store = windlass::open("memory://").unwrap();
    let _ = windlass::Worker::builder(store).handle(nothing);
}
