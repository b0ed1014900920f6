//! Colours of events.

/// The colour that a tool draws an event in: alpha, red, green and blue of 8 bits each.
///
/// ```
/// use nvtx::Color;
/// assert_eq!(Color::rgb(0xff, 0x80, 0), Color::argb(0xff, 0xff, 0x80, 0));
/// assert_eq!(Color::RED.to_argb(), 0xffff_0000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Color(u32);

impl Color {
    /// A colour from its four channels.
    #[must_use]
    pub const fn argb(alpha: u8, red: u8, green: u8, blue: u8) -> Color {
        Color(u32::from_be_bytes([alpha, red, green, blue]))
    }

    /// An opaque colour.
    #[must_use]
    pub const fn rgb(red: u8, green: u8, blue: u8) -> Color {
        Color::argb(0xff, red, green, blue)
    }

    /// A colour from the number `0xAARRGGBB`.
    #[must_use]
    pub const fn from_argb(argb: u32) -> Color {
        Color(argb)
    }

    /// The colour as the number `0xAARRGGBB`.
    pub const fn to_argb(self) -> u32 {
        self.0
    }
}

macro_rules! named {
    ($($(#[$doc:meta])* $name:ident = $rgb:literal;)*) => {
        /// Named colours, with the values of CSS. All are opaque.
        impl Color {
            $(
                #[doc = concat!("`", stringify!($rgb), "`")]
                pub const $name: Color = Color(0xff00_0000 | $rgb);
            )*
        }
    };
}

named! {
    AQUA = 0x00_ffff;
    BLACK = 0x00_0000;
    BLUE = 0x00_00ff;
    BROWN = 0xa5_2a2a;
    CORAL = 0xff_7f50;
    CRIMSON = 0xdc_143c;
    CYAN = 0x00_ffff;
    DARK_BLUE = 0x00_008b;
    DARK_GREEN = 0x00_6400;
    DARK_ORANGE = 0xff_8c00;
    DARK_RED = 0x8b_0000;
    GOLD = 0xff_d700;
    GRAY = 0x80_8080;
    GREEN = 0x00_8000;
    INDIGO = 0x4b_0082;
    LIGHT_BLUE = 0xad_d8e6;
    LIGHT_GRAY = 0xd3_d3d3;
    LIGHT_GREEN = 0x90_ee90;
    LIME = 0x00_ff00;
    MAGENTA = 0xff_00ff;
    MAROON = 0x80_0000;
    NAVY = 0x00_0080;
    OLIVE = 0x80_8000;
    ORANGE = 0xff_a500;
    PINK = 0xff_c0cb;
    PURPLE = 0x80_0080;
    RED = 0xff_0000;
    SALMON = 0xfa_8072;
    SILVER = 0xc0_c0c0;
    SKY_BLUE = 0x87_ceeb;
    TEAL = 0x00_8080;
    TURQUOISE = 0x40_e0d0;
    VIOLET = 0xee_82ee;
    WHITE = 0xff_ffff;
    YELLOW = 0xff_ff00;
}
