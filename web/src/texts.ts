// What the card says, in the words of people: the gateway is "the Hoop box". A translation that lacks a text does not compile.

import type { HoopError, Question, State, Stranger } from "./types.ts";

/** A heading and a sentence or two below it. */
export type Text = readonly [title: string, body: string];

export interface Texts {
  /** In all texts, `site` is the host of the service. */
  looking: Text;
  asking: Record<Question["kind"], (site: string) => Text>;
  /** The same where no box is known, and there may be none. */
  whether: Record<"permission" | "bridge", Text>;
  proceed: Record<Question["kind"], string>;
  decline: string;
  never: string;
  settings: string;
  /** `site` is empty when it goes to the Hoop box. */
  handing: (site: string) => Text;
  stranger: Record<Stranger, (site: string) => Text>;
  resumed: string;
  busy: (site: string) => Text;
  free: (site: string) => Text;
  received: (site: string) => Text;
  delivered: (site: string) => Text;
  held: Record<Waiting, (site: string) => Text>;
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
  finish: string;
}

/** What a held upload waits for. */
type Waiting = "session" | "token" | "permission" | "failure";

type Reason = "other" | "file" | "full" | "large" | "network" | "refused" | "unknown" | "signedOut" | "lies" | "noBox" | "alive";

const en: Texts = {
  looking: ["Looking for a Hoop box…", "If there is one on your network, it takes your files and delivers them after you leave."],
  asking: {
    offer: (site) => ["Hand this to the Hoop box and go?", `A Hoop box on your network takes your files quickly. Then you may leave. The box delivers your files to ${site}. They are sealed, so the box cannot read them.`],
    permission: () => ["May this page reach the Hoop box?", "When you are on its network, the Hoop box that you have used can deliver your files after you leave. Your browser will ask: choose “Allow”."],
    bridge: () => ["Open the Hoop box’s small window?", "When you are on its network, the Hoop box that you have used can take your files through this window, and deliver them after you leave. The window closes by itself."],
    retry: (site) => ["The Hoop box has gone", `If you are still on its network, try again. Or send the rest directly to ${site}.`],
  },
  whether: {
    permission: ["Do you have a Hoop box here?", "A Hoop box is a device on a network that takes files and delivers them while you go. If you know of one here, this page can look for it: your browser will ask first."],
    bridge: ["Do you have a Hoop box here?", "A Hoop box is a device on a network that takes files and delivers them while you go. If you know of one here, its small window can take them."],
  },
  proceed: { offer: "Hand it over", permission: "Look for it", bridge: "Open its window", retry: "Try again" },
  decline: "Send directly",
  never: "Don’t ask again",
  settings: "Settings",
  handing: (site) => [site ? `Sending your files to ${site}` : "Handing your files to the Hoop box", "Please keep this page open."],
  stranger: {
    unproven: (site) => ["Please keep this page open", `A Hoop box has your files, but has not shown that it can be relied on. This page says when ${site} has everything.`],
    changed: (site) => ["Please keep this page open", `This is not the Hoop box that you have used here before: it may be a new one, or someone may be posing as it. This page says when ${site} has everything.`],
  },
  resumed: "Going on from where it stopped.",
  busy: (site) => ["It will go on in a moment", `${site} takes a limited number of uploads per minute, and asks you to wait. Please keep this page open.`],
  free: (site) => ["You may leave", `The Hoop box has everything and delivers it to ${site}. You can close this page, leave, or switch off your device.`],
  received: (site) => ["You may leave", `${site} has received everything.`],
  delivered: (site) => ["Delivered", `${site} has accepted your upload.`],
  held: {
    session: (site) => ["Sign in to finish", `${site} has your files, but when they arrived you were no longer signed in.`],
    token: (site) => ["It waits for you", `Your files are at ${site}, which has not accepted them yet, because its form had expired. One click sends them once more.`],
    permission: (site) => ["It waits for you", `Your files are at ${site}, which did not let you do that. Ask for permission, or sign in with another account; then send them once more.`],
    failure: (site) => ["It waits for you", `Your files are at ${site}, which failed several times to process them. You can send them once more.`],
  },
  stopped: ["Stopped", "You can send it again."],
  ordinary: (site) => ["Sending directly", `Your files go to ${site} without a Hoop box. Please stay until it answers.`],
  failed: {
    other: (site) => ["This upload did not work", `${site} has not accepted it. Please try again.`],
    file: () => ["A file cannot be read", "It was changed, moved or deleted. Choose your files again, then send them."],
    full: () => ["The Hoop box is full", "Try again later, or send your files directly."],
    large: (site) => ["These files are too large", `${site} does not take that much at once.`],
    network: () => ["The connection was lost", "Check your network, then try again. Nothing is sent twice."],
    refused: (site) => [`${site} did not accept this`, "Check what you have sent, then send it again."],
    unknown: (site) => [`Please look at ${site}`, "Everything was sent, but the answer was lost. Check whether your files are there before you send them again."],
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
  finish: "Finish",
};

const fr: Texts = {
  looking: ["Recherche d’un boîtier Hoop…", "S’il y en a un sur votre réseau, il prend vos fichiers et les livre pendant que vous partez."],
  asking: {
    offer: (site) => ["Confier l’envoi au boîtier Hoop et partir ?", `Un boîtier Hoop de votre réseau prend vos fichiers rapidement. Vous pourrez alors partir : il les livre à ${site}, scellés, sans pouvoir les lire.`],
    permission: () => ["Cette page peut-elle joindre le boîtier Hoop ?", "Sur son réseau, le boîtier Hoop que vous avez utilisé peut livrer vos fichiers pendant que vous partez. Votre navigateur va demander : choisissez « Autoriser »."],
    bridge: () => ["Ouvrir la petite fenêtre du boîtier Hoop ?", "Sur son réseau, le boîtier Hoop que vous avez utilisé peut prendre vos fichiers par elle et les livrer pendant que vous partez. Elle se ferme toute seule."],
    retry: (site) => ["Le boîtier Hoop a disparu", `Si vous êtes toujours sur son réseau, réessayez. Ou envoyez le reste directement à ${site}.`],
  },
  whether: {
    permission: ["Avez-vous un boîtier Hoop ici ?", "Un boîtier Hoop est un appareil du réseau qui prend des fichiers et les livre pendant que vous partez. Si vous en connaissez un ici, cette page peut le chercher : votre navigateur demandera d’abord."],
    bridge: ["Avez-vous un boîtier Hoop ici ?", "Un boîtier Hoop est un appareil du réseau qui prend des fichiers et les livre pendant que vous partez. Si vous en connaissez un ici, sa petite fenêtre peut les prendre."],
  },
  proceed: { offer: "Confier l’envoi", permission: "Le chercher", bridge: "Ouvrir sa fenêtre", retry: "Réessayer" },
  decline: "Envoyer directement",
  never: "Ne plus demander",
  settings: "Préférences",
  handing: (site) => [site ? `Envoi de vos fichiers à ${site}` : "Vos fichiers passent au boîtier Hoop", "Gardez cette page ouverte."],
  stranger: {
    unproven: (site) => ["Gardez cette page ouverte", `Un boîtier Hoop a vos fichiers, mais n’a pas montré qu’on peut s’y fier. Cette page dira quand ${site} aura tout reçu.`],
    changed: (site) => ["Gardez cette page ouverte", `Ce n’est pas le boîtier Hoop que vous avez utilisé ici : un nouveau peut-être, ou quelqu’un qui se fait passer pour lui. Cette page dira quand ${site} aura tout reçu.`],
  },
  resumed: "L’envoi reprend là où il s’était arrêté.",
  busy: (site) => ["L’envoi reprendra dans un instant", `${site} n’accepte qu’un certain nombre d’envois par minute et demande d’attendre. Gardez cette page ouverte.`],
  free: (site) => ["Vous pouvez partir", `Le boîtier Hoop a tout reçu et le livre à ${site}. Fermez cette page, éloignez-vous, éteignez : tout va bien.`],
  received: (site) => ["Vous pouvez partir", `${site} a tout reçu.`],
  delivered: (site) => ["Livré", `${site} a accepté votre envoi.`],
  held: {
    session: (site) => ["Connectez-vous pour finir", `${site} a vos fichiers, mais à leur arrivée vous n’étiez plus connecté.`],
    token: (site) => ["L’envoi vous attend", `Vos fichiers sont à ${site}, qui ne les a pas encore pris : son formulaire était devenu trop ancien. Un clic les envoie à nouveau.`],
    permission: (site) => ["L’envoi vous attend", `Vos fichiers sont à ${site}, qui ne vous l’a pas permis. Ils peuvent être envoyés à nouveau, par vous ou quand vous êtes connecté avec les droits voulus.`],
    failure: (site) => ["L’envoi vous attend", `Vos fichiers sont à ${site}, qui a échoué plusieurs fois. Ils peuvent être envoyés à nouveau.`],
  },
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
  finish: "Terminer",
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

const WAITING: Partial<Record<string, Waiting>> = { "form-token-refused": "token", "not-permitted": "permission", "upstream-failed": "failure" };

/** What a held upload waits for, by its error. */
export function waiting(error?: HoopError): Waiting {
  return WAITING[error?.code ?? ""] ?? "session";
}

/** What is said of a state. */
export function words(t: Texts, { phase, question, stranger, way, error, busy }: State, site: string): Text {
  if (busy && phase === "looking") return t.busy(site);
  if (phase === "asking") {
    const kind = question?.kind ?? "offer";
    return question?.known === false && (kind === "permission" || kind === "bridge") ? t.whether[kind] : t.asking[kind](site);
  }
  if (phase === "handing") return stranger ? t.stranger[stranger](site) : t.handing(way === "service" ? site : "");
  if (phase === "held") return t.held[waiting(error)](site);
  if (phase === "failed") return t.failed[reason(error)](site);
  const text = t[phase];
  return typeof text === "function" ? text(site) : text;
}

const unit = (language: Language, value: number, unit: string, long: boolean, maximumFractionDigits = 0) =>
  new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: long ? "long" : "short", maximumFractionDigits }).format(value);

/** `34 MB`, `34 Mo`: of decimal units, since file managers and phones count so. */
export function size(language: Language, bytes: number): string {
  const power = bytes >= 1e9 ? 3 : bytes >= 1e6 ? 2 : 1;
  const value = bytes / 1000 ** power;
  return unit(language, value, ["", "kilobyte", "megabyte", "gigabyte"][power]!, false, value < 10 ? 1 : 0);
}

/** `7 seconds`, `12 minutes`: coarse, so that it does not flicker. */
export function time(language: Language, seconds: number): string {
  if (seconds > 5400) return unit(language, Math.ceil(seconds / 3600), "hour", true);
  if (seconds > 90) return unit(language, Math.ceil(seconds / 60), "minute", true);
  const step = seconds > 10 ? 5 : 1;
  return unit(language, Math.max(1, Math.ceil(seconds / step) * step), "second", true);
}
