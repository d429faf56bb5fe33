import { formatNumber } from '../../charts';
import type { Hello } from '../../protocol/messages.generated';
import type { IContent } from './content';
import type { Translate } from './translate';

/** Adds to a picture where its rows come from. */
export function withOrigin(content: IContent, hello: Hello | null, t: Translate): IContent {
  return { ...content, caption: [...originWords(hello, t), ...content.caption] };
}

/**
 * Say where the rows come from when no tracer of ours sends them, and whether their steps are the training's
 * own.
 */
export function originWords(hello: Hello | null, t: Translate): string[] {
  const origin = hello?.origin;
  if (!origin) {
    return [];
  }
  const lines: string[] = [];
  if (origin.kind === 'replay') {
    const name = origin.name ?? t('a recorded run');
    lines.push(
      origin.speed === undefined
        ? t('Replay of %1.', name)
        : t('Replay of %1 at %2 × its speed.', name, formatNumber(origin.speed))
    );
  }
  if (origin.steps === 'inferred') {
    lines.push(
      origin.kind === 'foreign'
        ? t('Steps inferred: the foreign hub sends none.')
        : t('Steps inferred: the foreign hub that was recorded sent none.')
    );
  }
  return lines;
}
