//! Runs.

use super::RedisStore;
use async_trait::async_trait;
use windlass_core::id::RunId;
use windlass_core::store::{
    NewRun, RunClaim, RunCommit, RunCommitted, RunCreated, RunList, RunMessage, RunPage, RunRead, RunStore, RunView,
    RunsClaimed,
};
use windlass_core::{Error, Result};

fn not_yet<T>() -> Result<T> {
    Err(Error::Incompatible { what: "runs on Redis".to_owned() })
}

#[async_trait]
impl RunStore for RedisStore {
    async fn create_runs(&self, _: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>> {
        not_yet()
    }

    async fn claim_runs(&self, _: RunClaim) -> Result<RunsClaimed> {
        not_yet()
    }

    async fn commit_runs(&self, _: Vec<RunCommit>) -> Result<Vec<Result<RunCommitted>>> {
        not_yet()
    }

    async fn send_to_runs(&self, _: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        not_yet()
    }

    async fn read_runs(&self, _: Vec<RunRead>) -> Result<Vec<Option<RunView>>> {
        not_yet()
    }

    async fn list_runs(&self, _: RunList) -> Result<RunPage> {
        not_yet()
    }

    async fn remove_runs(&self, _: Vec<RunId>) -> Result<Vec<Result<()>>> {
        not_yet()
    }
}
