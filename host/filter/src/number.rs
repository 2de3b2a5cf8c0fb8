use std::cmp::Ordering;

/// A number of a pattern or of a body: whole numbers exactly, others as the nearest double. `1`, `1.0` and `1e0` are one
/// number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    /// Never a whole number that the other one could hold, and always finite.
    Double(f64),
}

/// 2^127, the first whole number that an `i128` cannot hold.
const TOO_LARGE: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

// === impl Number ===

impl Number {
    /// A finite number; what it is of others does not matter, because neither JSON nor a pattern has them.
    pub(crate) fn double(value: f64) -> Self {
        if value.fract() == 0.0 && value.abs() < TOO_LARGE { Self::Whole(value as i128) } else { Self::Double(value) }
    }

    /// How both compare as numbers, without rounding either.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one.cmp(&other),
            (Self::Double(one), Self::Double(other)) => one.total_cmp(&other),
            (Self::Whole(one), Self::Double(other)) => compare_whole(one, other),
            (Self::Double(one), Self::Whole(other)) => compare_whole(other, one).reverse(),
        }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value.into())
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::Whole(value.into())
    }
}

/// A whole number and a double that is none, or is too large to be one.
fn compare_whole(whole: i128, double: f64) -> Ordering {
    if double.abs() >= TOO_LARGE {
        return if double > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    // The fraction is cut off towards zero, and is not 0.
    let cut = whole.cmp(&(double as i128));
    cut.then(if double > 0.0 { Ordering::Less } else { Ordering::Greater })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_compare_exactly_where_doubles_would_round() {
        let beyond = Number::from((1_u64 << 53) + 1);
        assert_eq!(beyond.compare(Number::double(2_f64.powi(53))), Ordering::Greater);
        assert_eq!(Number::from(u64::MAX).compare(Number::double(2_f64.powi(64))), Ordering::Less);
        assert_eq!(Number::from(i64::MIN).compare(Number::double(-(2_f64.powi(63)))), Ordering::Equal);
        assert_eq!(Number::from(0_u64).compare(Number::double(-0.0)), Ordering::Equal);
        assert_eq!(Number::from(0_u64), Number::double(-0.0));
        assert_eq!(Number::from(0_u64).compare(Number::double(-0.5)), Ordering::Greater);
        assert_eq!(Number::from(0_u64).compare(Number::double(f64::MIN_POSITIVE)), Ordering::Less);
        assert_eq!(Number::from(-1_i64).compare(Number::double(-0.5)), Ordering::Less);
        assert_eq!(Number::from(-1_i64).compare(Number::double(-1.5)), Ordering::Greater);
        assert_eq!(Number::from(u64::MAX).compare(Number::double(1e300)), Ordering::Less);
        assert_eq!(Number::from(i64::MIN).compare(Number::double(-1e300)), Ordering::Greater);
        assert_eq!(Number::double(1e38).compare(Number::double(1e39)), Ordering::Less);
    }

    proptest! {
        /// Quarters of a range that doubles hold exactly, in both forms.
        #[test]
        fn an_order_of_numbers(one in -4000_i64..4000, other in -4000_i64..4000) {
            let (first, second) = (Number::double(one as f64 / 4.0), Number::double(other as f64 / 4.0));
            prop_assert_eq!(first.compare(second), one.cmp(&other));
            prop_assert_eq!(first == second, one == other);
        }

        #[test]
        fn wholes_have_one_form(value in any::<i32>()) {
            prop_assert_eq!(Number::double(value.into()), Number::from(i64::from(value)));
        }
    }
}
