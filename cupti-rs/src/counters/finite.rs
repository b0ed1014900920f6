//! Serialization of the values of a range (feature `serde`). NaN is null.

use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

pub(super) fn serialize<S: Serializer>(
    values: &Option<Vec<f64>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let known = |value: &f64| value.is_finite().then_some(*value);
    let known = values.as_ref().map(|values| values.iter().map(known).collect::<Vec<_>>());
    known.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<f64>>, D::Error> {
    let known = Option::<Vec<Option<f64>>>::deserialize(deserializer)?;
    let number = |value: Option<f64>| value.unwrap_or(f64::NAN);
    Ok(known.map(|values| values.into_iter().map(number).collect()))
}
