import type { GenerateRequest } from '../../../../protocol/messages.generated';
import { isRangeText } from '../../../../protocol/ranges';
import type { Control } from '../../../../views/shared/control';
import { selectControl } from '../../../../views/shared/select-control';
import type { Translate } from '../../../../views/shared/translate';

type Sweep = NonNullable<GenerateRequest['sweep']>;
type Over = Sweep['over'];

/** What is written where something else is varied, and what is suggested. */
const FIRST: Readonly<Record<Over, string>> = { coefficient: '0.01, 0.1, 1', layers: '0 1', site: '' };
const MOST_VALUES = 200;

/** The settings of a sweep as they are being written. */
export class SweepDraft {
  /** @param _changed - Shows the controls anew. */
  constructor(private readonly _changed: () => void) {}

  /** The sweep; null where nothing is swept. */
  get wish(): Sweep | null {
    return this._over === '' ? null : { over: this._over, values: this._values };
  }

  /** What is wrong with the settings as they are written. */
  get fault(): string | undefined {
    const { _over: over, _values: values } = this;
    const wrong =
      over === 'coefficient'
        ? values.find(each => !Number.isFinite(each))
        : over === 'layers'
          ? values.find(each => !isRangeText(String(each)))
          : undefined;
    if (over === '') {
      return undefined;
    }
    if (values.length < 1 || values.length > MOST_VALUES) {
      return `Must be 1 to ${MOST_VALUES} settings, got ${values.length}.`;
    }
    return wrong === undefined
      ? undefined
      : `Must be ${over === 'layers' ? 'layers such as 0 1 2-3' : 'numbers such as 0.01, 0.1, 1'}, got ${this._text}.`;
  }

  /** The controls: what is varied, and its settings. */
  controls(fault: string | undefined, sites: readonly string[], t: Translate): Control[] {
    const words: Readonly<Record<Over | '', string>> = {
      '': t('nothing'),
      coefficient: t('coefficient'),
      layers: t('layers'),
      site: t('site')
    };
    return [
      selectControl('sweep.over', t('Sweep'), this._over, words, over => {
        this._over = over;
        this._text = over === 'site' ? sites.join(', ') : over === '' ? '' : FIRST[over];
        this._changed();
      }),
      ...(this._over === ''
        ? []
        : [
            {
              kind: 'text',
              id: 'sweep.values',
              label: t('Settings'),
              value: this._text,
              suggestions: [this._over === 'site' ? sites.join(', ') : FIRST[this._over]],
              spaced: true,
              title: t('Repeat the perturbation with other settings, and say of each what it changed'),
              fault,
              valid: () => true,
              change: text => {
                this._text = text;
                this._changed();
              }
            } satisfies Control
          ])
    ];
  }

  private get _values(): (number | string)[] {
    // A setting of layers may have commas of its own: `0-1,3`.
    const parts = this._text.split(this._over === 'layers' ? /[\s;]+/ : /[\s;,]+/).filter(Boolean);
    return this._over === 'coefficient' ? parts.map(Number) : parts;
  }

  private _over: Over | '' = '';
  private _text = '';
}
