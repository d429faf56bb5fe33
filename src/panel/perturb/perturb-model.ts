import { Signal } from '@lumino/signaling';
import type { Perturb, PerturbSite, SiteInfo } from '../../protocol/messages.generated';
import { isOver, type IRunSource } from '../../store/source';
import type { ControlModel } from '../summary/control-model';
import { compressorWithDefaults } from '../../views/shared/forecast';
import { faultsIn, type ApplyState, type IFault } from '../trace/draft';

/** What is done at a site, with every member written out. */
export type IFullSite = Required<PerturbSite>;

export interface ISiteRow {
  readonly info: SiteInfo;
  readonly available: boolean;
  /** What would be done there, null when nothing. */
  readonly setting: IFullSite | null;
  /** Fault that the hub found here, by field within the site. */
  readonly faults: ReadonlyMap<string, IFault>;
}

/** Steps until a perturbation ends by itself, as in protocol/messages.schema.json. */
const STEPS = 100;

/**
 * A perturbation being written, and the one that is armed.
 *
 * What can be perturbed comes from `hello.sites`. The form outlives what others arm and disarm.
 */
export class PerturbModel {
  constructor(
    private readonly source: IRunSource,
    private readonly control: ControlModel
  ) {}

  readonly changed = new Signal<this, void>(this);

  /** What is armed now, null when nothing is: it also ends by itself. */
  get armed(): Perturb | null {
    const armed = this.control.config.perturb ?? null;
    const step = this.source.status?.step ?? 0;
    const ended = armed?.until !== undefined && step > armed.until;
    return ended || isOver(this.source) ? null : armed;
  }

  /** Steps that perturbations have touched so far in this run. */
  get touched(): number {
    return this.source.status?.perturbed_steps ?? 0;
  }

  /** Those of them that what is armed now has touched; null where nobody says so. */
  get touchedNow(): number | null {
    return this.source.status?.armed_steps ?? null;
  }

  /** Steps until it ends by itself, null when that is not known. */
  get left(): number | null {
    const until = this.armed?.until;
    return until === undefined ? null : Math.max(0, until - (this.source.status?.step ?? 0));
  }

  /** Where the last arming or disarming stands. */
  get asked(): ApplyState {
    return this.control.asked('perturb');
  }

  /** Whether it may be armed and disarmed from here. */
  get writable(): boolean {
    return this.control.allows('perturb');
  }

  get seed(): number {
    return this._seed;
  }

  set seed(seed: number) {
    this._seed = seed;
    this._edited();
  }

  get steps(): number {
    return this._steps;
  }

  set steps(steps: number) {
    this._steps = steps;
    this._edited();
  }

  get ready(): boolean {
    return this.rows.some(row => row.setting !== null);
  }

  /** One row per site of hello, in its order. */
  get rows(): readonly ISiteRow[] {
    return (this.source.hello?.sites ?? []).map(info => {
      const setting = this._sites.get(info.name) ?? null;
      return {
        info,
        available: info.reason === undefined && info.layers.length > 0 && info.kinds.length > 0,
        setting,
        faults: faultsIn(this.asked, `perturb.sites.${info.name}`)
      };
    });
  }

  get value(): Perturb {
    const sites = Object.fromEntries(
      this.rows.flatMap(({ info, setting }) => (setting === null ? [] : [[info.name, setting]]))
    );
    return { sites, seed: this._seed, steps: this._steps };
  }

  /** Choose a site with its first kind, or leave it alone. */
  toggle(site: string, on: boolean): void {
    const now = this._sites.get(site);
    if (!on && now !== undefined) {
      this._last.set(site, now);
      this._sites.delete(site);
    }
    const first = this._info(site)?.kinds[0];
    if (on && first !== undefined) {
      this._sites.set(
        site,
        this._last.get(site) ?? {
          kind: compressorWithDefaults(first),
          layers: 'all',
          phases: [this.source.hello?.phase ?? 'train']
        }
      );
    }
    this._edited();
  }

  change(site: string, members: Partial<IFullSite>): void {
    const now = this._sites.get(site);
    if (now !== undefined) {
      this._sites.set(site, { ...now, ...members });
      this._edited();
    }
  }

  /** Choose a kind, with the defaults that hello names. */
  chooseKind(site: string, name: string): void {
    const kind = this._info(site)?.kinds.find(each => each.name === name);
    if (kind !== undefined) {
      this.change(site, { kind: compressorWithDefaults(kind) });
    }
  }

  /** Change one parameter of a site's kind. */
  changeParameter(site: string, name: string, value: unknown): void {
    const kind = this._sites.get(site)?.kind;
    if (kind !== undefined) {
      this.change(site, { kind: { name: kind.name, params: { ...kind.params, [name]: value } } });
    }
  }

  revert(): void {
    this._sites.clear();
    this._last.clear();
    this._seed = 0;
    this._steps = STEPS;
    this._edited();
  }

  /** Arm what the form says. Never rejects: what came of it is in `asked`. */
  arm(): Promise<void> {
    return this.control.ask('perturb', { perturb: this.value });
  }

  /** End what is armed. Never rejects. */
  disarm(): Promise<void> {
    return this.control.ask('perturb', { perturb: null });
  }

  dispose(): void {
    Signal.clearData(this);
  }

  private _info(site: string): SiteInfo | undefined {
    return this.source.hello?.sites?.find(({ name }) => name === site);
  }

  private _edited(): void {
    this.control.settle('perturb');
    this.changed.emit();
  }

  private readonly _sites = new Map<string, IFullSite>();
  private readonly _last = new Map<string, IFullSite>();
  private _seed = 0;
  private _steps = STEPS;
}
