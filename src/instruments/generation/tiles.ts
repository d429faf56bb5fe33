import { translatedLater } from '../../protocol/texts';
import { formatInteger } from '../../charts';
import { ReadOnce } from '../../store/read-once';
import type { IRunSource, SourceChange } from '../../store/source';
import type { ITiles } from '../../views/overview/tiles';
import { WordsTile, type ISaid } from '../../views/overview/words-tile';
import { nothingYet, type IState } from '../../views/shared/states';
import type { IViewEnvironment } from '../../views/shared/view-model';
import { generationOf, readTokens, readGenerations } from './store/generations';
import { tokenWords } from '../../views/kits/text/token-words';
import type { IReportPart } from '../../report/report-part';

/** What a report shows of the texts that a run wrote. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const written = await readGenerations(run).catch(() => []);
  return {
    has: {
      tokens: written.length > 0,
      lens: written.some(({ request }) => (request?.lens ?? 0) > 0),
      effects: written.some(({ control }) => control > 0)
    }
  };
}

/** Most characters of a text, and of what was given, that are shown. */
const MOST_TEXT = 600;
const MOST_GIVEN = 80;
/** Columns that a text is made of. */
const COLUMNS = ['sequence', 'position', 'kind', 'text'];

/** The newest text that the model wrote. */
class TextTile extends WordsTile {
  constructor(source: IRunSource, env: IViewEnvironment) {
    super(source, env, env.t('Newest text'), ['generations', 'tokens']);
  }

  override concerns(change: SourceChange): boolean {
    const concerned = super.concerns(change);
    if (concerned || change.kind === 'hello') {
      this._reader.renew();
    }
    return concerned;
  }

  protected async read(signal: AbortSignal): Promise<ISaid | IState> {
    const { source, t } = this;
    const newest = generationOf(await this._reader.read(source), null);
    if (newest === undefined) {
      return nothingYet(t('The model wrote no text yet.'), this.actions, t);
    }
    const tokens = await readTokens(source, newest.generation, 0, signal, COLUMNS);
    const written = tokens.filter(({ isPrompt }) => !isPrompt).map(({ text }) => tokenWords(text));
    const given = tokens.filter(({ isPrompt }) => isPrompt).map(({ text }) => tokenWords(text));
    const [text, before] = [written.join('').slice(0, MOST_TEXT), given.join('').slice(-MOST_GIVEN)];
    const step = formatInteger(newest.firstStep);
    const lead = newest.firstStep < 0 ? [] : [{ text: t('Text %1, step %2', newest.generation, step) }];
    return {
      brief: { lines: lead, quote: { given: before, text } },
      said: [t('The newest text, after “%1”: “%2”.', before, text)]
    };
  }

  private readonly _reader = new ReadOnce(readGenerations);
}

export const TILES: ITiles = {
  streams: [],
  tiles: [
    {
      id: 'text',
      order: 10,
      title: translatedLater('Newest text'),
      opens: { view: 'tokens' },
      isWide: true,
      create: (source, env) => new TextTile(source, env)
    }
  ]
};
