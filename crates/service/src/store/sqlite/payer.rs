//! How a [`Payer`] stands in the index: its kind's first letter, then its tag.

use crate::model::Payer;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

impl ToSql for Payer {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let bytes = [&self.kind().as_bytes()[..1], self.tag()].concat();
        Ok(bytes.into())
    }
}

impl FromSql for Payer {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let (kind, tag) = value.as_blob()?.split_first().ok_or(FromSqlError::InvalidType)?;
        let tag = tag.try_into().map_err(|_| FromSqlError::InvalidType)?;
        match kind {
            b'o' => Ok(Self::Owner(tag)),
            b'a' => Ok(Self::Address(tag)),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_gives_back_who_pays() {
        for payer in [Payer::Owner([1; 16]), Payer::Address([2; 16])] {
            let ToSqlOutput::Owned(rusqlite::types::Value::Blob(bytes)) = payer.to_sql().unwrap() else { panic!() };
            assert_eq!(Payer::column_result(ValueRef::Blob(&bytes)).unwrap(), payer);
        }
        assert!(Payer::column_result(ValueRef::Blob(b"x123")).is_err());
    }
}
