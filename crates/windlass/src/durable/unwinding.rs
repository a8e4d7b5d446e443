//! The panic strategy of the program.
//!
//! A panic of workflow code makes its run stuck. In a program that aborts at a panic it would end the process, and with it all jobs and
//! runs that the worker executes.

use windlass_core::{Error, Result};

include!("panic_strategy.rs");

/// Refuses a program whose panics do not unwind. Workers call it with [`UNWINDS`].
pub(crate) fn check_unwinds(unwinds: bool) -> Result<()> {
    if unwinds {
        return Ok(());
    }
    let why = "is `abort` in this build: one panic in a workflow would end the process with everything it executes; remove \
               `panic = \"abort\"` from the profile in Cargo.toml, or register the workflows in a program of their own";
    Err(Error::invalid("panic", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_aborts_at_a_panic_is_refused_with_the_setting_to_change() {
        check_unwinds(UNWINDS).unwrap();
        let refused = check_unwinds(false).unwrap_err().to_string();
        assert!(refused.contains("remove `panic = \"abort\"` from the profile in Cargo.toml"), "{refused}");
    }
}
