import { SLICES } from './instruments/slices.generated';
import { addPanelPart } from './panel/shell/panel-part';
import { commandsPlugin, launcherPlugin } from './plugins/commands';
import { notebookPlugin } from './plugins/notebook';
import { panelPlugin } from './plugins/panel';
import { runsPlugin } from './plugins/runs';
import { runsTablePlugin } from './plugins/runs-table';
import { viewRegistryPlugin } from './plugins/view-registry';
import { viewsPlugin } from './plugins/views';
import { mimePlugin, widgetsPlugin } from './plugins/widgets';
import { registerSlices } from './slice';

// What packages with views of their own need; the token has to be this one.
export { IMegalensViewRegistry } from './tokens';
export { kitOptions } from './protocol/kit-options';
export type { IKit, IKitQuery } from './views/kits/kit';
export type { ILinesKit, IStepLine, KitLineOptions } from './views/kits/lines-kit';
export type { IGrid, IGridRow, IMatrixKit, KitMatrixOptions } from './views/kits/matrix-kit';
export type { IPlanePoint, IPointsKit, KitPointOptions } from './views/kits/points-kit';
export type { ILanesKit, KitLaneOptions } from './views/kits/lanes-kit';
export type { ILaneSpan } from './views/kits/lanes/nested-spans';
export type { IKitToken, ITextKit, KitTextOptions } from './views/kits/text-kit';
export { ViewModel, type IViewEnvironment } from './views/shared/view-model';
export type { IPlace, IRecipe } from './charts';
export type { IViewDescriptor, IViewInfo } from './protocol/view-descriptor';
export type { IRunSource, SourceChange } from './store/source';
export type { OtherOptions, IOtherHost, IOtherMounted, IMountModule } from './views/view';
export type * from './views/other-views';
export type { IMark, IMoved, Loaded } from './views/shared/content';
export type { Control } from './views/shared/control';
export type { IViewDefinition } from './views/shared/definition';
export type { ITip } from './views/shared/table';

/** Load what makes a view of its rows alone: lines, a matrix, lanes, points, or a text. */
export const kits = (): Promise<typeof import('./views/kits')> => import('./views/kits');

registerSlices(SLICES);
for (const { panel } of SLICES) {
  if (panel) {
    addPanelPart(panel);
  }
}

export default [
  runsPlugin,
  viewRegistryPlugin,
  viewsPlugin,
  panelPlugin,
  runsTablePlugin,
  commandsPlugin,
  launcherPlugin,
  notebookPlugin,
  widgetsPlugin,
  mimePlugin
];
