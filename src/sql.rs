//! Tokens and lineages as values of SQL drivers: whole numbers of 64 bits, for `BIGINT` columns.
//!
//! A number that is not a token is an error of the driver when it is read.

use crate::protocol::{LineageId, Token};

/// Implements the traits of each driver by those of `i64`.
macro_rules! as_i64 {
    ($type:ty) => {
        #[cfg(feature = "postgres")]
        impl postgres_types::ToSql for $type {
            fn to_sql(
                &self,
                of: &postgres_types::Type,
                out: &mut bytes::BytesMut,
            ) -> Result<postgres_types::IsNull, DriverError> {
                self.as_i64().to_sql(of, out)
            }

            fn accepts(of: &postgres_types::Type) -> bool {
                <i64 as postgres_types::ToSql>::accepts(of)
            }

            postgres_types::to_sql_checked!();
        }

        #[cfg(feature = "postgres")]
        impl postgres_types::FromSql<'_> for $type {
            fn from_sql(of: &postgres_types::Type, raw: &[u8]) -> Result<Self, DriverError> {
                Ok(<$type>::try_from(i64::from_sql(of, raw)?)?)
            }

            fn accepts(of: &postgres_types::Type) -> bool {
                <i64 as postgres_types::FromSql>::accepts(of)
            }
        }

        #[cfg(feature = "rusqlite")]
        impl rusqlite::ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                Ok(self.as_i64().into())
            }
        }

        #[cfg(feature = "rusqlite")]
        impl rusqlite::types::FromSql for $type {
            fn column_result(
                value: rusqlite::types::ValueRef<'_>,
            ) -> rusqlite::types::FromSqlResult<Self> {
                let number = i64::column_result(value)?;
                <$type>::try_from(number)
                    .map_err(|error| rusqlite::types::FromSqlError::Other(Box::new(error)))
            }
        }

        #[cfg(feature = "sqlx")]
        impl<D: sqlx::Database> sqlx::Type<D> for $type
        where
            i64: sqlx::Type<D>,
        {
            fn type_info() -> D::TypeInfo {
                <i64 as sqlx::Type<D>>::type_info()
            }

            fn compatible(of: &D::TypeInfo) -> bool {
                <i64 as sqlx::Type<D>>::compatible(of)
            }
        }

        #[cfg(feature = "sqlx")]
        impl<'q, D: sqlx::Database> sqlx::Encode<'q, D> for $type
        where
            i64: sqlx::Encode<'q, D>,
        {
            fn encode_by_ref(
                &self,
                out: &mut <D as sqlx::Database>::ArgumentBuffer<'q>,
            ) -> Result<sqlx::encode::IsNull, DriverError> {
                <i64 as sqlx::Encode<'q, D>>::encode_by_ref(&self.as_i64(), out)
            }
        }

        #[cfg(feature = "sqlx")]
        impl<'r, D: sqlx::Database> sqlx::Decode<'r, D> for $type
        where
            i64: sqlx::Decode<'r, D>,
        {
            fn decode(value: <D as sqlx::Database>::ValueRef<'r>) -> Result<Self, DriverError> {
                Ok(<$type>::try_from(<i64 as sqlx::Decode<'r, D>>::decode(value)?)?)
            }
        }
    };
}

#[cfg(any(feature = "postgres", feature = "sqlx"))]
type DriverError = Box<dyn std::error::Error + Send + Sync>;

as_i64!(Token);
as_i64!(LineageId);
