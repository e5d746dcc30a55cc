// A grid of glass and stone under two lights.
#version 3.7;
global_settings { assumed_gamma 1.0 max_trace_level 8 }
camera { location <0, 6, -12> look_at <0, 0, 2> }
light_source { <10, 20, -20> rgb 1 area_light <3, 0, 0>, <0, 3, 0>, 5, 5 adaptive 1 jitter }
light_source { <-12, 8, -6> rgb 0.4 }
plane { y, -1 pigment { checker rgb 0.9, rgb 0.2 } finish { reflection 0.2 } }
#declare Row = 0;
#while (Row < 6)
  #declare Column = 0;
  #while (Column < 6)
    sphere { <Column * 2 - 5, 0, Row * 2>, 0.9
      #if (mod(Row + Column, 2) = 0)
        pigment { rgbf <0.9, 0.95, 1, 0.9> } interior { ior 1.5 } finish { reflection 0.1 }
      #else
        pigment { marble turbulence 0.8 scale 0.5 } finish { phong 0.6 reflection 0.15 }
      #end
    }
    #declare Column = Column + 1;
  #end
  #declare Row = Row + 1;
#end
