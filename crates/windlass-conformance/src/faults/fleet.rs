//! placeholder
use crate::runner::Case;
pub(crate) const CASES: &[Case] = &[];
