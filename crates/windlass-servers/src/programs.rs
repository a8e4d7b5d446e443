//! Where the servers' programs are.

use std::env;
use std::path::{Path, PathBuf};

use crate::error::ServerError;

pub(crate) const REDIS_VARIABLE: &str = "WINDLASS_TEST_REDIS_BIN";

/// The two programs of Redis.
#[derive(Debug, Clone)]
pub(crate) struct RedisPrograms {
    pub(crate) server: PathBuf,
    pub(crate) cli: PathBuf,
}

impl RedisPrograms {
    /// Looks at the variable first, then at `PATH`.
    pub(crate) fn find() -> Result<Self, ServerError> {
        let named = env::var_os(REDIS_VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
        Self::find_at(named.as_deref())
    }

    fn find_at(named: Option<&Path>) -> Result<Self, ServerError> {
        let Some(named) = named else {
            return Ok(Self { server: on_path("redis-server")?, cli: on_path("redis-cli")? });
        };
        let server = if named.is_dir() { named.join("redis-server") } else { named.to_owned() };
        if !server.is_file() {
            return Err(missing(&server.display().to_string()));
        }
        // A server that was built by hand may lie in a folder of its own.
        let beside = server.with_file_name("redis-cli");
        let cli = if beside.is_file() { beside } else { on_path("redis-cli")? };
        Ok(Self { server, cli })
    }
}

/// The program's file, in the first folder of `PATH` that has it.
fn on_path(program: &str) -> Result<PathBuf, ServerError> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| missing(program))
}

fn missing(program: &str) -> ServerError {
    ServerError::ProgramMissing { program: program.to_owned(), variable: REDIS_VARIABLE }
}

#[cfg(test)]
mod tests {
    use super::RedisPrograms;
    use crate::error::ServerError;

    #[test]
    fn a_folder_or_a_file_names_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let server = folder.path().join("redis-server");
        let error = RedisPrograms::find_at(Some(folder.path())).unwrap_err();
        assert!(matches!(error, ServerError::ProgramMissing { .. }), "{error}");

        std::fs::write(&server, "").unwrap();
        std::fs::write(folder.path().join("redis-cli"), "").unwrap();
        for named in [folder.path(), &server] {
            let found = RedisPrograms::find_at(Some(named)).unwrap();
            assert_eq!(found.server, server);
            assert_eq!(found.cli, folder.path().join("redis-cli"));
        }
    }
}
