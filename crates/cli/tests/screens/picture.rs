//! Pictures, compared pixel by pixel.

use std::path::Path;

/// Rows of pixels: red, green, blue.
#[derive(PartialEq)]
pub struct Picture {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    pub fn new(width: usize, pixels: Vec<[u8; 3]>) -> Self {
        Self { width, pixels }
    }

    /// A picture in which neighbouring pixels and rows differ.
    pub fn known(width: usize, height: usize, shade: u8) -> Self {
        let byte = |value: usize| value.to_le_bytes()[0];
        let pixel = |at: usize| {
            let x = at % width;
            let y = at / width;
            [byte(x * 2), byte(y * 3), byte(x ^ y) ^ shade]
        };
        Self { width, pixels: (0..width * height).map(pixel).collect() }
    }

    /// Writes it as a portable pixmap (PPM).
    pub fn write(&self, path: &Path) {
        let mut bytes = format!("P6\n{} {}\n255\n", self.width, self.height()).into_bytes();
        bytes.extend(self.pixels.iter().flatten());
        std::fs::write(path, bytes).unwrap();
    }

    /// Whether it contains `other`, pixel by pixel, at any position.
    pub fn contains(&self, other: &Self) -> bool {
        let right = (self.width + 1).saturating_sub(other.width);
        let down = (self.height() + 1).saturating_sub(other.height());
        let mut places = (0..down).flat_map(|y| (0..right).map(move |x| (x, y)));
        places.any(|(x, y)| {
            (0..other.height()).all(|row| {
                let start = (y + row) * self.width + x;
                self.pixels[start..start + other.width] == *other.row(row)
            })
        })
    }

    fn height(&self) -> usize {
        self.pixels.len() / self.width
    }

    fn row(&self, row: usize) -> &[[u8; 3]] {
        &self.pixels[row * self.width..(row + 1) * self.width]
    }
}

#[test]
fn a_picture_is_found_only_if_every_pixel_is_there() {
    let large = Picture::known(40, 30, 0);
    let cut = |x: usize, y: usize| {
        let rows = (y..y + 5).map(|row| &large.pixels[row * 40 + x..row * 40 + x + 7]);
        Picture::new(7, rows.flatten().copied().collect())
    };
    assert!(large.contains(&cut(0, 0)) && large.contains(&cut(33, 25)) && large.contains(&large));
    let mut other = cut(10, 10);
    other.pixels[34][2] ^= 1;
    assert!(!large.contains(&other));
    assert!(!other.contains(&large));
}
