/** Numbers, times and sizes as text: 3 significant digits, thin spaces between thousands. */

const THIN = "\u202f";
const MINUS = "\u2212";
const NONE = "–";
const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** Put a real minus sign and thin spaces into a plain decimal number. */
function typeset(text) {
  const [whole, fraction] = text.replace("-", "").split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, THIN) : whole;
  return (text.startsWith("-") ? MINUS : "") + grouped + (fraction ? `.${fraction}` : "");
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A number with `digits` significant digits: 0.123, 12.3, 12 345, 1.23·10⁻⁵; a dash for null. */
export function number(value, digits = 3) {
  if (!isNumber(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) return scientific(value, digits);
  const rounded = Number(value.toPrecision(digits));
  const whole = Math.abs(rounded) >= 10 ** (digits - 1);
  return typeset(whole ? String(Math.round(value)) : trim(value.toPrecision(digits)));
}

/** A setting: up to 6 significant digits without zeros at the end. */
export function exact(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return scientific(value, 6).replace(/\.?0+(?=·)/, "");
  return typeset(String(Number(value.toPrecision(6))));
}

/** A number as a mantissa and a power of ten. */
function scientific(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  return `${typeset(mantissa)}·${power(Number(exponent))}`;
}

/** A power of ten: 10⁻⁵. */
export const power = (exponent) => `10${[...String(exponent)].map((one) => SUPERSCRIPTS[one]).join("")}`;

/** Without an exponent, which toPrecision writes for some numbers. */
const trim = (text) => (text.includes("e") ? String(Number(text)) : text);

/** A number with a fixed count of decimals, for columns that line up. */
export const fixed = (value, decimals = 3) => (isNumber(value) ? typeset(value.toFixed(decimals)) : NONE);

/** The same with a sign: +0.012, −0.003. */
export const signed = (value, decimals = 3) =>
  isNumber(value) ? (value >= 0 ? "+" : "") + fixed(value, decimals) : NONE;

/** A whole number: 12 345. */
export const count = (value) => (isNumber(value) ? typeset(String(Math.round(value))) : NONE);

/** A share as a percentage: 12.3 %. */
export const percent = (share, digits = 3) => (isNumber(share) ? `${number(100 * share, digits)}${THIN}%` : NONE);

/** Bytes with a binary unit: 12.3 MiB. */
export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${number(value / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** A span of seconds in its largest unit: 450 ms, 12 s, 3 min, 5 h, 2 d. */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 1) return `${Math.round(1000 * Math.max(0, seconds))} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** How long ago a time in ms since 1970 is: "12 s ago". */
export function ago(time, now = Date.now()) {
  if (!isNumber(time)) return NONE;
  const seconds = (now - time) / 1000;
  return seconds < 1 ? "now" : `${duration(seconds)} ago`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** The time of day of ms since 1970: 14:05:09. */
export const clock = (time) => (isNumber(time) ? CLOCK.format(time) : NONE);

/** Date and time of ms since 1970, or of a text of ISO 8601: 3 May, 14:05. */
export function time(value) {
  const at = typeof value === "string" ? Date.parse(value) : value;
  return isNumber(at) ? DAY.format(at) : NONE;
}

/** One or several: plural(1, "list"), plural(3, "list"). */
export const plural = (value, noun, many = `${noun}s`) => `${count(value)} ${value === 1 ? noun : many}`;

/** A number with its sign: +0.12, −0.3. */
export const withSign = (value) => (value > 0 ? `+${number(value)}` : number(value));

/** A share in words: 7 %, less than 0.1 %. */
export function share(value) {
  const percent = 100 * value;
  if (percent > 0 && percent < 0.1) return "less than 0.1\u202f%";
  if (percent < 100 && percent > 99.9) return "more than 99.9\u202f%";
  return `${percent < 10 ? Number(percent.toFixed(1)) : Math.round(percent)}\u202f%`;
}

export const reasonOf = (error) => ended(error.detail || error.message || `status ${error.status}`);

export const ended = (text) => (/[.!?…]$/.test(text) ? text : `${text}.`);
