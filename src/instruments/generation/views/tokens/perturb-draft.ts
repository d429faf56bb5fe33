import type { KindInfo, Perturb, SiteInfo } from '../../../../protocol/messages.generated';
import { own, withOwn } from '../../../../protocol/records';
import { isRangeText } from '../../../../protocol/ranges';
import { schemaDefaults } from '../../../../protocol/schema-check';
import { type Control, selectControl } from '../../../../views/shared/control';
import { titleWords } from '../../../../views/shared/describe';
import type { Translate } from '../../../../views/shared/translate';

/** A parameter of a kind, as far as the form reads its JSON Schema. */
interface IParameter {
  readonly type?: string;
  readonly title?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
}

/** Says what was said against a field, by its path within the perturbation. */
type Faults = (path: string) => string | undefined;

/** A perturbation of one site that is being written. */
export class PerturbDraft {
  constructor(
    private readonly _sites: () => readonly SiteInfo[],
    private readonly _changed: () => void
  ) {}

  /** The perturbation; null where nothing is to be perturbed. */
  get value(): Perturb | null {
    const kind = this._kind;
    return kind
      ? {
          sites: { [this._site]: { kind: { name: kind.name, params: this._params }, layers: this._layers } },
          seed: this._seed
        }
      : null;
  }

  /** Dotted path of the site within the request. */
  get path(): string {
    return `perturb.sites.${this._site}`;
  }

  get sites(): readonly string[] {
    return this._offered.map(({ name }) => name);
  }

  private get _offered(): SiteInfo[] {
    return this._sites().filter(
      ({ kinds, layers, reason }) => reason === undefined && kinds.length > 0 && layers.length > 0
    );
  }

  /** The controls: the site, and of a chosen one its kind, parameters and layers. */
  controls(faultOf: Faults, t: Translate): Control[] {
    const sites = this._offered;
    const kind = this._kind;
    const none = { value: '', text: t('nothing') };
    const named = <T extends { name: string; title: string }>(each: T): { value: string; text: string } => ({
      value: each.name,
      text: titleWords(each.title, t)
    });
    if (sites.length === 0) {
      return [];
    }
    const site = selectControl('perturb.site', t('Perturb'), this._site, [none, ...sites.map(named)], value =>
      this._choose(value, sites.find(({ name }) => name === value)?.kinds[0])
    );
    if (!kind) {
      return [site];
    }
    const kinds = sites.find(({ name }) => name === this._site)?.kinds ?? [];
    return [
      site,
      selectControl('perturb.kind', t('Kind'), kind.name, kinds.map(named), value =>
        this._choose(
          this._site,
          kinds.find(({ name }) => name === value)
        )
      ),
      ...Object.entries(parametersOf(kind)).map(([name, parameter]) =>
        this._parameter(name, parameter, faultOf(`kind.params.${name}`), t)
      ),
      {
        kind: 'text',
        id: 'perturb.layers',
        label: t('In layers'),
        value: this._layers,
        suggestions: ['all'],
        valid: isRangeText,
        fault: faultOf('layers'),
        change: layers => this._set(() => (this._layers = layers))
      },
      {
        kind: 'number',
        id: 'perturb.seed',
        label: t('Its seed'),
        title: t('The same seed gives the same perturbation'),
        value: this._seed,
        least: 0,
        most: Number.MAX_SAFE_INTEGER,
        change: seed => this._set(() => (this._seed = seed))
      }
    ];
  }

  private _parameter(
    name: string,
    { description, enum: choices, maximum, minimum, title = name, type }: IParameter,
    fault: string | undefined,
    t: Translate
  ): Control {
    const id = `perturb.param.${name}`;
    const value = own(this._params, name);
    const change = (next: unknown): void =>
      this._set(() => (this._params = withOwn(this._params, name, next)));
    if (choices || type === 'boolean') {
      const offered = choices ?? [false, true];
      return selectControl(
        id,
        title,
        JSON.stringify(value ?? offered[0]),
        offered.map(each => ({
          value: JSON.stringify(each),
          text: type === 'boolean' ? (each ? t('on') : t('off')) : String(each)
        })),
        chosen => change(JSON.parse(chosen))
      );
    }
    return type === 'number' || type === 'integer'
      ? {
          kind: 'number',
          id,
          label: title,
          title: description,
          fault,
          isFraction: type === 'number',
          value: Number(value ?? minimum ?? 0),
          least: minimum ?? -Number.MAX_VALUE,
          most: maximum ?? Number.MAX_VALUE,
          change
        }
      : {
          kind: 'text',
          id,
          label: title,
          value: String(value ?? ''),
          suggestions: [],
          spaced: true,
          fault,
          valid: () => true,
          change
        };
  }

  private get _kind(): KindInfo | undefined {
    const site = this._sites().find(({ name }) => name === this._site);
    return site?.kinds.find(({ name }) => name === this._name);
  }

  private _choose(site: string, kind: KindInfo | undefined): void {
    this._set(() => {
      this._site = site;
      this._name = kind?.name ?? '';
      this._params = kind ? schemaDefaults(kind.schema) : {};
    });
  }

  private _set(change: () => unknown): void {
    change();
    this._changed();
  }

  private _site = '';
  private _name = '';
  private _params: Record<string, unknown> = {};
  private _layers = 'all';
  private _seed = 0;
}

const parametersOf = ({ schema }: KindInfo): Record<string, IParameter> =>
  (schema as { properties?: Record<string, IParameter> }).properties ?? {};
