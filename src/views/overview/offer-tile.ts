import type { FlagInfo, FlagSetting, Hello } from '../../protocol/messages.generated';
import type { IRunSource } from '../../store/source';
import { estimateBytes, firstSetting, isAvailable, positionsOf } from '../shared/forecast';
import { nothingYet, sizeWords, unheardState, type IState } from '../shared/states';
import type { IViewEnvironment } from '../shared/view-model';
import { WordsTile, type ISaid } from './words-tile';
import { canTrace } from './picture-tiles';

/** Most trace points that are offered. */
const MOST_OFFERED = 3;

/** A trace point that could be traced, and what that costs. */
export interface IOffer {
  readonly flag: FlagInfo;
  readonly setting: FlagSetting;
  /** Bytes of a micro-batch; null where that is not known before a step was traced. */
  readonly bytes: number | null;
}

/** What can be had of a run that traces nothing, the cheapest first. */
export function offersOf({ flags, compressors, phase }: Hello): IOffer[] {
  const positions = positionsOf(flags);
  const offers = flags.filter(isAvailable).flatMap(flag => {
    const setting = firstSetting(flag, compressors, phase);
    const bytes = setting && estimateBytes(flag, setting, positions);
    return setting ? [{ flag, setting, bytes }] : [];
  });
  return offers.sort((a, b) => (a.bytes ?? 1e99) - (b.bytes ?? 1e99)).slice(0, MOST_OFFERED);
}

/** What stands where the map would be while nothing is traced: what can be had, at which price. */
export class OfferTile extends WordsTile {
  constructor(source: IRunSource, env: IViewEnvironment) {
    super(source, env, env.t('Layers over steps'), []);
  }

  protected async read(): Promise<ISaid | IState> {
    const { actions, source, t } = this;
    const { hello } = source;
    if (hello === null) {
      return unheardState(source, actions, t);
    }
    const offers = canTrace(source) ? offersOf(hello) : [];
    if (offers.length === 0) {
      return nothingYet(t('Nothing of the layers is traced or logged in this run.'), actions, t);
    }
    const intro = t('Nothing is traced yet. One click traces:');
    return {
      brief: {
        lines: [
          { text: intro },
          ...offers.map(offer => ({
            text: `${offer.flag.title}, ${sizeWords(offer.bytes, source, t)}`,
            action: {
              label: t('Trace'),
              run: async () => {
                await source.configure({ flags: { [offer.flag.name]: offer.setting } });
              }
            }
          }))
        ]
      },
      said: [t('Nothing is traced yet.')]
    };
  }
}
