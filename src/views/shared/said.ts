import { translatedLater } from '../../protocol/texts';
import type { Translate } from './translate';

/** Sentences that come whole, as a run's rules and events have them: `%1`, `%2` … stand for what differs. */
type Sentences = readonly string[];

/** Those of a run's events, which the core makes. */
const EVENTS: Sentences = translatedLater([
  'The budget of tracing changed.',
  'Training was paused.',
  'Training went on.',
  'Settings changed.',
  'Settings changed: %1.',
  'Perturbation.',
  'Perturbation: %1.',
  'Checkpoint saved.',
  'Checkpoint saved: %1',
  'Rank %1 attached again.',
  'Rank %1 was lost.',
  'The first value that was not finite: %1, layer %2.',
  'The recording lacks rows of these steps.',
  'Frames of these steps did not arrive here.',
  'These steps were before this page was opened, and there is no recording of them that could be read.'
]);

const loads = new Set<() => Promise<Sentences>>();
let known = EVENTS;

/** Have `said` know the sentences of an instrument, which are loaded when a picture may need them. */
export function addSentences(load: () => Promise<Sentences>): void {
  loads.add(load);
}

/** Load all of them; without any of them its sentences stay English. */
export async function loadSentences(): Promise<void> {
  const of = [...loads];
  loads.clear();
  const more = await Promise.all(of.map(load => load().catch(() => [])));
  known = [...known, ...more.flat()];
}

/**
 * Say a sentence that came whole in the person's language, and so what stands in its places; a text that no
 * one here made stays as it is. The first sentence that fits is taken, so that the longer ones come first.
 */
export function said(text: string, t: Translate): string {
  for (const label of known) {
    const values = valuesOf(text, label);
    if (values !== null) {
      return t(label, ...values.map(each => said(each, t)));
    }
  }
  return text;
}

/** What stands in the places of a sentence; null where a text is another one. Goes over the text once. */
function valuesOf(text: string, sentence: string): string[] | null {
  const [first = '', ...parts] = sentence.split(/%\d/);
  const last = parts.pop();
  if (last === undefined) {
    return text === sentence ? [] : null;
  }
  const end = text.length - last.length;
  if (!text.startsWith(first) || !text.endsWith(last)) {
    return null;
  }
  const values: string[] = [];
  let at = first.length;
  for (const part of parts) {
    const next = text.indexOf(part, at + 1);
    if (next < 0) {
      return null;
    }
    values.push(text.slice(at, next));
    at = next + part.length;
  }
  values.push(text.slice(at, end));
  return at < end ? values : null;
}
