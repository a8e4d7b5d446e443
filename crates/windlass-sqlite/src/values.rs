//! How values of the contract stand in columns.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::State;
use windlass_core::store::RunState;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// A value of the contract in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Col<T>(pub(crate) T);

/// Why a value cannot be read.
#[derive(Debug)]
struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

fn unreadable(error: impl fmt::Display) -> FromSqlError {
    FromSqlError::Other(Box::new(Unreadable(error.to_string())))
}

impl ToSql for Col<Timestamp> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.as_ms().into())
    }
}

impl FromSql for Col<Timestamp> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|ms| Self(Timestamp::from_ms(ms)))
    }
}

/// Unsigned numbers of ours are below 2^63, except bit patterns, which keep their bits.
impl ToSql for Col<u64> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.cast_signed().into())
    }
}

impl FromSql for Col<u64> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|number| Self(number.cast_unsigned()))
    }
}

impl ToSql for Col<Token> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.bits().cast_signed().into())
    }
}

impl FromSql for Col<Token> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(|bits| Self(Token::from_bits(bits.cast_unsigned())))
    }
}

impl ToSql for Col<State> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(i64::try_from(self.0.index()).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Col<State> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let code = value.as_i64()?;
        let state = usize::try_from(code).ok().and_then(|index| State::ALL.get(index));
        state.map(|state| Self(*state)).ok_or(FromSqlError::OutOfRange(code))
    }
}

impl ToSql for Col<JobId> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl FromSql for Col<JobId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str()?.parse().map(Self).map_err(unreadable)
    }
}

impl ToSql for Col<RunId> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.to_string().into())
    }
}

impl FromSql for Col<RunId> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str()?.parse().map(Self).map_err(unreadable)
    }
}

impl ToSql for Col<RunState> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let place = RunState::ALL.iter().position(|state| *state == self.0);
        Ok(place.and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Col<RunState> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let code = value.as_i64()?;
        let state = usize::try_from(code).ok().and_then(|index| RunState::ALL.get(index));
        state.map(|state| Self(*state)).ok_or(FromSqlError::OutOfRange(code))
    }
}

/// A name, which is checked when it is read.
#[derive(Clone, Debug)]
pub(crate) struct Name<T>(pub(crate) T);

impl<T: for<'a> TryFrom<&'a str, Error = Error>> FromSql for Name<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::try_from(value.as_str()?).map(Self).map_err(unreadable)
    }
}

/// A value as JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(unreadable)
    }
}

/// `value` as JSON text.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::corrupt(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_an_error_and_not_a_panic() {
        let text = |text: &'static str| ValueRef::Text(text.as_bytes());
        assert!(Col::<State>::column_result(ValueRef::Integer(6)).is_err());
        assert!(Col::<State>::column_result(ValueRef::Integer(-1)).is_err());
        assert!(Col::<State>::column_result(text("ready")).is_err());
        assert!(Col::<JobId>::column_result(text("nonsense")).is_err());
        assert!(Col::<JobId>::column_result(ValueRef::Text(&[0xff])).is_err());
        assert!(Json::<Vec<u8>>::column_result(text("{")).is_err());
        assert_eq!(Col::<u64>::column_result(ValueRef::Integer(-1)).unwrap(), Col(u64::MAX));
    }
}
