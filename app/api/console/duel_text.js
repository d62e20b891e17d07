/** Duels and followers in words. */

import { count, exact, percent } from "./format.js";

/** A verdict of fewer decided lists is not to be expected. */
const FEW = 100;
/** The settings that a follower may have of its own. */
const OWN = { algorithm: "", covariance: "", gamma: "γ ", C: "C ", clicks: "", forgetting: "forgetting ", prior: "prior " };

/** The challenger in words. */
export const challengerName = (challenger) => challenger === "submitted" ? "the submitted order"
  : challenger.version === undefined ? challenger : `version ${count(challenger.version)}`;

/** The verdict on the champion in one of four sentences, and its colour; it is named unless it is the model. */
export function verdictOf(duel, model) {
  const found = sentenceOf(duel);
  return duel.champion === model ? found : { ...found, text: `${duel.champion} ${found.text}` };
}

function sentenceOf({ challenger, verdict, decided, win_share: share }) {
  const [other, lists] = [challengerName(challenger), `${percent(share)} of decided lists`];
  if (verdict === "champion") return { text: `beats ${other}, ${lists}`, kind: "good-text" };
  if (verdict === "challenger") return { text: `loses to ${other}, ${lists}`, kind: "bad-text" };
  const text = decided < FEW ? `too few decided lists against ${other}` : `undecided against ${other}, ${lists}`;
  return { text, kind: "" };
}

/** The settings of a follower that differ from its leader's. */
export const settingsOf = (follower, leader) => Object.entries(OWN)
  .filter(([key]) => follower[key] !== undefined && follower[key] !== leader[key])
  .map(([key, label]) => label + (typeof follower[key] === "number" ? exact(follower[key]) : follower[key])).join(", ");
