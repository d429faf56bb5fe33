import type { TranslationBundle } from '@jupyterlab/translation';
import type { ISignal } from '@lumino/signaling';
import type { ReactElement } from 'react';
import type { IRunSource } from '../../store/source';
import type { IPanelHost } from './panel-host';

/** What an instrument adds to a chosen run. */
export interface IRunPart {
  readonly changed: ISignal<unknown, void>;
  /** Alarms that nobody looked at, which the run's line and the panel's icon count; absent is none. */
  readonly alarms?: number;
  /** A view of the run was opened by a person. */
  opened?(view: string): void;
  /** Lines below the run's figures. */
  render?(): ReactElement | null;
  /** Let go of the run. Safe twice. */
  dispose(): void;
}

/** What an instrument adds to the panel, whichever run is chosen. */
export interface IPanelPart {
  /** Follow a run that was chosen, by its id. */
  open(id: string, source: IRunSource): IRunPart;
  dispose(): void;
}

/** What the panel gives an instrument. */
export interface IPartHost {
  readonly host: Pick<IPanelHost, 'alarm' | 'openView' | 'share'>;
  readonly trans: TranslationBundle;
  /** A setting of the panel as it is now; undefined where there are no settings. */
  setting(name: string): unknown;
}

/** Adds an instrument to a panel. */
export type OpenPanelPart = (panel: IPartHost) => IPanelPart;

const parts: (() => Promise<OpenPanelPart>)[] = [];

/** Have every panel that is made from now on hold an instrument's part. */
export function addPanelPart(load: () => Promise<OpenPanelPart>): void {
  parts.push(load);
}

/** Load the parts of all instruments. */
export const loadPanelParts = (): Promise<readonly OpenPanelPart[]> => Promise.all(parts.map(load => load()));
