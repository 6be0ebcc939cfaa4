// What the card says, in the words of people: the gateway is "the Hoop box". A translation that lacks a text does not compile.

import type { HoopError, Question, State } from "./types.ts";

/** A heading and a sentence or two below it. */
export type Text = readonly [title: string, body: string];

export interface Texts {
  /** In all texts, `site` is the host of the service. */
  looking: Text;
  asking: Record<Question["kind"], (site: string) => Text>;
  proceed: Record<Question["kind"], string>;
  decline: string;
  /** `site` is empty when it goes to the Hoop box. */
  handing: (site: string) => Text;
  resumed: string;
  windowOnly: Text;
  free: (site: string) => Text;
  received: (site: string) => Text;
  delivered: (site: string) => Text;
  held: (site: string) => Text;
  stopped: Text;
  ordinary: (site: string) => Text;
  /** By the error's code: what happened, and what to do. */
  failed: Record<Reason, (site: string) => Text>;
  steps: readonly [box: string, site: string, accepted: string];
  of: (sent: string, total: string) => string;
  left: (time: string) => string;
  cancel: string;
  again: string;
  dismiss: string;
  monitor: string;
  location: string;
  uploads: string;
  signIn: string;
}

type Reason = "other" | "file" | "full" | "large" | "network" | "refused" | "unknown" | "signedOut" | "lies" | "noBox" | "alive";

const en: Texts = {
  looking: ["Looking for a Hoop box…", "A Hoop box on your network can take your files and deliver them while you go."],
  asking: {
    offer: (site) => ["Hand this to the Hoop box and go?", `A Hoop box on your network takes your files quickly. Then you may leave: it delivers them to ${site}, sealed, so that it cannot read them.`],
    permission: () => ["May this page reach the Hoop box?", "A Hoop box on your network can deliver your files while you go. Your browser will ask: choose “Allow”."],
    bridge: () => ["Open the Hoop box’s small window?", "Through it, a Hoop box on your network can take your files and deliver them while you go. It closes by itself."],
    retry: (site) => ["The Hoop box has gone", `If you are still on its network, try again. Or send the rest directly to ${site}.`],
  },
  proceed: { offer: "Hand it over", permission: "Continue", bridge: "Open the window", retry: "Try again" },
  decline: "Send directly",
  handing: (site) => [site ? `Sending your files to ${site}` : "Handing your files to the Hoop box", "Please keep this page open."],
  resumed: "Going on from where it stopped.",
  windowOnly: ["You may close this page", "But leave the Hoop box’s small window open: it closes by itself."],
  free: (site) => ["You may leave", `The Hoop box has everything and delivers it to ${site}. Close this page, go away, switch off: all fine.`],
  received: (site) => ["You may leave", `${site} has received everything.`],
  delivered: (site) => ["Delivered", `${site} has accepted your upload.`],
  held: (site) => ["Sign in to finish", `${site} has your files, but you have been signed out meanwhile.`],
  stopped: ["Stopped", "You can send it again."],
  ordinary: (site) => ["Sending directly", `Your files go to ${site} without a Hoop box. Please stay until it answers.`],
  failed: {
    other: (site) => ["This upload did not work", `${site} has not accepted it. Please try again.`],
    file: () => ["A file cannot be read", "It was changed, moved or deleted. Choose your files again, then send them."],
    full: () => ["The Hoop box is full", "Try again later, or send your files directly."],
    large: (site) => ["These files are too large", `${site} does not take that much at once.`],
    network: () => ["The connection was lost", "Check your network, then try again. Nothing is sent twice."],
    refused: (site) => [`${site} did not accept this`, "Check what you have sent, then send it again."],
    unknown: (site) => [`Please look at ${site}`, "All was sent, but the answer was lost. Look whether your files are there before you send them again."],
    signedOut: (site) => ["You are signed out", `Sign in to ${site}, then send your files again.`],
    lies: () => ["This Hoop box does not work", "Send your files directly, and tell whoever looks after it."],
    noBox: () => ["There is no Hoop box here", "Send your files directly."],
    alive: () => ["It could not be stopped", "What has gone out may still arrive. Look at your uploads before you send it again."],
  },
  steps: ["On the Hoop box", "At the site", "Accepted"],
  of: (sent, total) => `${sent} of ${total}`,
  left: (time) => `about ${time} left`,
  cancel: "Cancel",
  again: "Try again",
  dismiss: "Close",
  monitor: "Follow it on the box’s page",
  location: "See it",
  uploads: "My uploads",
  signIn: "Sign in",
};

const fr: Texts = {
  looking: ["Recherche d’un boîtier Hoop…", "Un boîtier Hoop de votre réseau peut prendre vos fichiers et les livrer pendant que vous partez."],
  asking: {
    offer: (site) => ["Confier l’envoi au boîtier Hoop et partir ?", `Un boîtier Hoop de votre réseau prend vos fichiers rapidement. Vous pourrez alors partir : il les livre à ${site}, scellés, sans pouvoir les lire.`],
    permission: () => ["Cette page peut-elle joindre le boîtier Hoop ?", "Un boîtier Hoop de votre réseau peut livrer vos fichiers pendant que vous partez. Votre navigateur va demander : choisissez « Autoriser »."],
    bridge: () => ["Ouvrir la petite fenêtre du boîtier Hoop ?", "Par elle, un boîtier Hoop de votre réseau peut prendre vos fichiers et les livrer pendant que vous partez. Elle se ferme toute seule."],
    retry: (site) => ["Le boîtier Hoop a disparu", `Si vous êtes toujours sur son réseau, réessayez. Ou envoyez le reste directement à ${site}.`],
  },
  proceed: { offer: "Confier l’envoi", permission: "Continuer", bridge: "Ouvrir la fenêtre", retry: "Réessayer" },
  decline: "Envoyer directement",
  handing: (site) => [site ? `Envoi de vos fichiers à ${site}` : "Vos fichiers passent au boîtier Hoop", "Gardez cette page ouverte."],
  resumed: "L’envoi reprend là où il s’était arrêté.",
  windowOnly: ["Vous pouvez fermer cette page", "Mais laissez la petite fenêtre du boîtier Hoop ouverte : elle se ferme toute seule."],
  free: (site) => ["Vous pouvez partir", `Le boîtier Hoop a tout reçu et le livre à ${site}. Fermez cette page, éloignez-vous, éteignez : tout va bien.`],
  received: (site) => ["Vous pouvez partir", `${site} a tout reçu.`],
  delivered: (site) => ["Livré", `${site} a accepté votre envoi.`],
  held: (site) => ["Connectez-vous pour finir", `${site} a vos fichiers, mais vous avez été déconnecté entre-temps.`],
  stopped: ["Arrêté", "Vous pouvez refaire cet envoi."],
  ordinary: (site) => ["Envoi direct", `Vos fichiers vont à ${site} sans boîtier Hoop. Restez jusqu’à sa réponse.`],
  failed: {
    other: (site) => ["Cet envoi n’a pas abouti", `${site} ne l’a pas accepté. Veuillez réessayer.`],
    file: () => ["Un fichier est illisible", "Il a été modifié, déplacé ou supprimé. Choisissez à nouveau vos fichiers, puis envoyez-les."],
    full: () => ["Le boîtier Hoop est plein", "Réessayez plus tard, ou envoyez vos fichiers directement."],
    large: (site) => ["Ces fichiers sont trop gros", `${site} n’accepte pas autant à la fois.`],
    network: () => ["La connexion est perdue", "Vérifiez votre réseau, puis réessayez. Rien n’est envoyé deux fois."],
    refused: (site) => [`${site} n’a pas accepté l’envoi`, "Vérifiez ce que vous avez envoyé, puis recommencez."],
    unknown: (site) => [`Vérifiez sur ${site}`, "Tout a été envoyé, mais la réponse est perdue. Regardez si vos fichiers y sont avant de les renvoyer."],
    signedOut: (site) => ["Vous êtes déconnecté", `Connectez-vous à ${site}, puis renvoyez vos fichiers.`],
    lies: () => ["Ce boîtier Hoop ne marche pas", "Envoyez vos fichiers directement, et prévenez la personne qui s’en occupe."],
    noBox: () => ["Il n’y a pas de boîtier Hoop ici", "Envoyez vos fichiers directement."],
    alive: () => ["L’envoi n’a pas pu être arrêté", "Ce qui est parti peut encore arriver. Regardez vos envois avant de recommencer."],
  },
  steps: ["Sur le boîtier Hoop", "Sur le site", "Accepté"],
  of: (sent, total) => `${sent} sur ${total}`,
  left: (time) => `encore ${time} environ`,
  cancel: "Annuler",
  again: "Réessayer",
  dismiss: "Fermer",
  monitor: "Suivre sur la page du boîtier",
  location: "Voir",
  uploads: "Mes envois",
  signIn: "Se connecter",
};

const LANGUAGES = { en, fr };
export type Language = keyof typeof LANGUAGES;

/** The first of these language tags that is spoken here; else English. */
export function language(tags: readonly (string | null | undefined)[]): Language {
  for (const tag of tags) {
    const primary = tag?.toLowerCase().split(/[-_]/)[0];
    if (primary && Object.hasOwn(LANGUAGES, primary)) return primary as Language;
  }
  return "en";
}

export const texts = (language: Language): Texts => LANGUAGES[language];

const REASONS: Partial<Record<string, Reason>> = {
  "file-changed": "file",
  "file-unreadable": "file",
  "spool-full": "full",
  "too-large": "large",
  network: "network",
  rejected: "refused",
  "answer-lost": "unknown",
  unknown: "unknown",
  "sign-in-required": "signedOut",
  "gateway-lies": "lies",
  "no-gateway": "noBox",
  "not-stopped": "alive",
  "upload-done": "alive",
};

/** Whether trying the same once more can help: neither after a refusal, nor with a file that must be chosen again, nor if
 *  it may have arrived. */
export function mayHelp(error?: HoopError): boolean {
  return !["file", "large", "refused", "unknown", "signedOut", "alive"].includes(reason(error));
}

function reason(error?: HoopError): Reason {
  return REASONS[error?.code ?? ""] ?? "other";
}

/** What is said of a state. */
export function words(t: Texts, { phase, question, windowOnly, way, error }: State, site: string): Text {
  if (phase === "asking") return t.asking[question?.kind ?? "offer"](site);
  if (phase === "handing") return windowOnly ? t.windowOnly : t.handing(way === "service" ? site : "");
  if (phase === "failed") return t.failed[reason(error)](site);
  const text = t[phase];
  return typeof text === "function" ? text(site) : text;
}

const unit = (language: Language, value: number, unit: string, long: boolean, maximumFractionDigits = 0) =>
  new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: long ? "long" : "short", maximumFractionDigits }).format(value);

/** `34 MB`, `34 Mo`: of decimal units, since file managers and phones count so. */
export function size(language: Language, octets: number): string {
  const power = octets >= 1e9 ? 3 : octets >= 1e6 ? 2 : 1;
  const value = octets / 1000 ** power;
  return unit(language, value, ["", "kilobyte", "megabyte", "gigabyte"][power]!, false, value < 10 ? 1 : 0);
}

/** `7 seconds`, `12 minutes`: coarse, so that it does not flicker. */
export function time(language: Language, seconds: number): string {
  if (seconds > 5400) return unit(language, Math.ceil(seconds / 3600), "hour", true);
  if (seconds > 90) return unit(language, Math.ceil(seconds / 60), "minute", true);
  const step = seconds > 10 ? 5 : 1;
  return unit(language, Math.max(1, Math.ceil(seconds / step) * step), "second", true);
}
